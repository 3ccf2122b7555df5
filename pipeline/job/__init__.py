"""The replication job: one query for all logs of a table, and the life cycle of each log."""
