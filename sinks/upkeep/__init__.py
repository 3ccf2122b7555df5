"""Keep the tables of a replica small: merge files, delete old records and unnamed files, trim the Delta log."""
