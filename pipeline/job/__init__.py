"""Replication: one query for all logs of a table, the life of each of them, and what ends it."""
