"""Tools for decoders: compiled loops, columns of bytes, compressed streams, unforeseen failures.

Begin with `undecodable`: what happens to a record that makes its decoder fail.
"""
