"""The command line: parses, prints, and calls the module that does the work. Begin with `app.py`."""
