"""How ``logtwin verify`` goes through a log: what to compare, in which jobs, and what is said of it."""
