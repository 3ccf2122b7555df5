"""Tools for decoders: compiled loops, spans of bytes, compressed streams, failures nobody thought of."""
