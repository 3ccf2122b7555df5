"""Speak to a master log, or be one: bytes -> records -> Arrow. Never imports ``sinks`` or ``pipeline``."""
