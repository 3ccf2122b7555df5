"""The process and its machine: child processes, signals, ports, files that are there whole or not at all."""
