"""Everything that logtwin runs: command line, configuration, replication job, queries and upkeep."""
