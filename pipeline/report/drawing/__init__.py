"""Facts as pictures, tables and sentences. Pure. Begin with `sections.py`."""
