"""Keep the tables of a replica small: merge files, delete old records and unnamed files, trim the Delta log.

Each module does one of these; begin with `compaction.py`. `pipeline/operate/maintain.py` calls them in order.
"""
