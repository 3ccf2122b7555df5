"""Segment files of a commit log: listed, searched, read, and rebuilt.

Begin with `segments`, the log in a folder; `log_end` says where it ends.
"""
