"""dister as a master: its leader's entry log, and what stands beside it."""
