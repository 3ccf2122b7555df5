"""The views of a replica: one ``.sql`` file for each view over its tables, and the code that registers them.

Begin with `definition.py`.
"""
