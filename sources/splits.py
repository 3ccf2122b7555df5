"""Into how many splits a batch is cut: every core gets one, all take as long, and a small batch is one file.

Pure. Sizes are bytes of the master's log.
"""

from __future__ import annotations

from typing import Final

WORTH_A_TASK_BYTES: Final = 16 * 1024 * 1024
"""Less than this is read in less time than a second task takes to start, and would leave a second small file."""


def split_bytes(total_bytes: int, *, most_bytes: int, cores: int) -> int:
    """What each split of a batch of `total_bytes` takes; at most `most_bytes`.

    Where every core can have what is worth a task, their number is a multiple of `cores`: a task left over would keep
    the others waiting for its whole length.
    """
    splits = max(-(-total_bytes // most_bytes), 1)
    if total_bytes >= cores * WORTH_A_TASK_BYTES:
        splits = -(-splits // cores) * cores
    else:
        splits = max(splits, total_bytes // WORTH_A_TASK_BYTES)
    return max(-(-total_bytes // splits), 1)
