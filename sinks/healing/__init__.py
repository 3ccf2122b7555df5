"""Change what is in a replica: bring it back to its master, take rows out, fill holes."""
