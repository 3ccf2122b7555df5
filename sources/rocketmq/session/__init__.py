"""Connections to a master's HA port: one acknowledges, others read, and some take turns."""
