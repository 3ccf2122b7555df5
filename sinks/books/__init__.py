"""Tables that follow the log table: ledger, incidents, quarantine, epochs."""
