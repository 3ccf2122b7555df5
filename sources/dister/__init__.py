"""dister as a master: the entry log in its leader's folder, and the states beside it.

Begin with `log`, the master log. `entry_log` reads it, by way of `log_walk` (files), `line_walk` (lines) and `entries`
(one line); `columns` makes rows. `states` are the files beside the log, `metadata` reads them and makes rows.
"""
