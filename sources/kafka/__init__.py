"""Kafka topics as masters: the log of each partition, read by offset from its leader."""
