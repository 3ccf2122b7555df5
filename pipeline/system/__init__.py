"""The process and its machine: consoles, processes, folders. Begin with `console.py`."""
