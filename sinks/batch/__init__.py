"""One batch of many logs: read and written by tasks, proven, and committed."""
