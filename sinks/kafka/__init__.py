"""Replicates topics: all partitions of one in one commit. Imports of ``sources`` as all of sinks."""
