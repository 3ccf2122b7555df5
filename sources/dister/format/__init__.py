"""Entries of dister's log: lines of text <-> values and columns."""
