"""What is kept beside a log: the history of its master's metadata, and the map that a log makes.

Begin with `metadata.py`, and for the map with `key_values.py`.
"""
