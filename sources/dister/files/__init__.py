"""A leader's folder: batch files, where an offset is in them, and the states beside them."""
