"""What stands beside a log, with its history: a master's metadata, the map that a log makes."""
