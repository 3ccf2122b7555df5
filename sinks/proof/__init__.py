"""Reads a replica back: rows by offset, rebuilt bytes, what is complete, what is the master's."""
