"""Answers questions about a replica, mostly without a JVM: status, coverage, incidents, tables, keys."""
