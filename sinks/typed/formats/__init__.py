"""How bodies are read, a module for each format (JSON and text: `sinks/typed/formats/json_fields.py`).

A reader makes of a body the JSON text of each of its fields, so that columns, masks and `_rest` know JSON alone.
"""
