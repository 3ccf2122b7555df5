"""Kafka topics as masters: the log of each partition, read by offset from its leader.

Begin with `topic`, the master, and `log`, one partition of it; `reader` fetches many partitions at once.
"""
