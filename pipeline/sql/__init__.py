"""``logtwin sql``: statements in, results out, on a session that reads one replica and writes nothing.

Begin with `reader.py`, the session; `authority.py` decides what a statement may do.
"""
