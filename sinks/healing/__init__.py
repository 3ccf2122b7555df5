"""Change what is in a replica: bring it back to its master, take rows out, fill holes.

Begin with `repair.py`, which decides what a repair does; `hole_filler.py` brings back what is missing.
"""
