"""Connections to a master's HA port: one acknowledges, others read, and some take turns.

Begin with `session`, which acknowledges, and `ha_client`, which reads.
"""
