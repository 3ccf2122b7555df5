"""Demonstrations, and the masters and storage that they and the tests start. Begin with `live.py`."""
