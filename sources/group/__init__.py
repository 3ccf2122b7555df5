"""Many logs as one stream: which batch comes next, and what it reads of each log."""
