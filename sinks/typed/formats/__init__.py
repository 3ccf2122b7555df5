"""Readers of bodies, a module for each format (JSON and text: `sinks/typed/formats/json_fields.py`).

A reader turns a body into the JSON text of each of its fields, so columns, masks and `_rest` deal only with JSON.
"""
