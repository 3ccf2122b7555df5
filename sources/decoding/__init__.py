"""Tools for decoders: compiled loops, spans of bytes, compressed streams, unforeseen failures."""
