"""Answers questions about a replica, mostly without a JVM: status, coverage, incidents, tables, keys.

A module for each verb; begin with `overview.py`, which is all that ``logtwin status`` says.
"""
