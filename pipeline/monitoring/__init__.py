"""What a running job reports: progress, metrics, probes, and the file that shows that it is alive.

Begin with `progress.py`, the facts of a log.
"""
