"""The storage of tables: places, object stores, their settings and their errors. Begin with `place.py`."""
