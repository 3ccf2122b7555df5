"""Code that speaks to a master log, or is one: bytes -> records -> Arrow. Never imports ``sinks`` or ``pipeline``."""
