"""Wire and run: configuration, Spark session, streaming queries, command line."""
