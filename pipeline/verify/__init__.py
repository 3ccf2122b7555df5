"""``logtwin verify``: what it compares, in which Spark jobs, and how it reports. Begin with `run.py`."""
