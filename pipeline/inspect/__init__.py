"""Questions about a replica, answered without a JVM: status, coverage, incidents, tables, keys."""
