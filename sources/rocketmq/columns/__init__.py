"""Records of a commit log: bytes <-> Arrow columns, many at a time.

Begin with `codec`, which decodes; `restore` is its inverse, `scan` and `loops` do the work on bytes.
"""
