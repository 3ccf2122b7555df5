"""The process and its machine: child processes, signals, ports, atomic files."""
