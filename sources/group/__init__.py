"""Many logs as one stream: which batch comes next, and what of which log it reads."""
