"""The job and everything that is run: command line, configuration, streaming query, questions, upkeep."""
