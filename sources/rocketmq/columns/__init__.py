"""Records of a commit log: bytes <-> Arrow columns, many at a time."""
