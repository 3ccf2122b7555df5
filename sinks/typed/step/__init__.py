"""One step of a typed table: messages are read, parsed, and become rows in one commit."""
