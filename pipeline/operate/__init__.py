"""Operations that an operator runs on a replica: backfill, repair, rebuild, maintenance.

A module for each verb; begin with `maintain.py`, and for what changes a log with `backfill.py`.
"""
