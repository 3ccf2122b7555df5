"""Tables that follow the log table: ledger, incidents, quarantine, epochs. Begin with `bookkeeping.py`."""
