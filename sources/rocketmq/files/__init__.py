"""Segment files of a commit log: found, searched, read, and rebuilt."""
