"""Read a replica back: rows by offset, rebuilt bytes, whether it is complete, whether it equals the master's log.

Begin with `completeness.py`, and for the bytes with `comparison.py`.
"""
