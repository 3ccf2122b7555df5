"""Values that commits carry: the last record, rows of the ledger, incidents. Pure. Begin with `ledger_row.py`."""
