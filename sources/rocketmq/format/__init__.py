"""Records of a commit log: bytes <-> values, one at a time."""
