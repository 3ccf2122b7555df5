"""Tools for decoders: compiled loops, columns of bytes, compressed streams, unforeseen failures."""
