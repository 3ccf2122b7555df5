"""Many logs as one stream: which batch comes next, and what it reads of each log.

Begin with `stream`, the reader that Spark calls; `planner` decides when a batch begins, `standing` what the job says.
"""
