"""dister as a master: its leader's entry log, and the states beside it."""
