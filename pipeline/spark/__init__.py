"""The Spark session: its settings, its jars, its Python workers. Begin with `session.py`."""
