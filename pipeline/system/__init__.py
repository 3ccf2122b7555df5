"""The process and its machine: consoles, processes, folders."""
