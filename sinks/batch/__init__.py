"""One batch of many logs: read and written by tasks, proven, and committed. Begin with `group.py`, its way."""
