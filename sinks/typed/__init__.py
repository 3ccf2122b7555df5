"""Typed tables: the messages of topics as tables with columns, made only from the log tables."""
