"""Keeps the tables of a replica small: merges files, deletes what is old or not named, trims the Delta log."""
