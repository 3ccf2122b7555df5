"""Typed tables: the messages of topics as tables with columns, made from the log tables and from nothing else."""
