"""The replication job: one query for all logs of a table, and the life cycle of each log.

Begin with `replicate.py`, the job; `log_group.py` runs the query of a table, `replication.py` is the life of a log.
"""
