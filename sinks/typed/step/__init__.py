"""One step of a typed table: read messages, parse them, and commit their rows at once."""
