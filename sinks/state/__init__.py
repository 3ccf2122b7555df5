"""What the log table says of each log: position, writer and holes, and who may change them.

Begin with `log_state.py`, the values; `positions.py` commits them for all logs of a run, `log_table.py` for one log.
"""
