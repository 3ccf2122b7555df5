"""Read a replica back: rows by offset, rebuilt bytes, whether it is complete, whether it equals the master's log."""
