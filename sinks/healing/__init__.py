"""Changes what is in a replica: goes back to the master, takes rows out, fills holes."""
