"""Finds out what a report says: small tables without Spark, single records by SQL. Begin with `queries.py`."""
