"""Records of a commit log: bytes <-> values, one at a time.

Begin with `layout`, the fields of a record, and `commitlog`, which decodes and encodes one.
"""
