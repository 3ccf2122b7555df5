"""Into how many splits a batch is cut: every core gets one, all take as long, and a small batch is one file.

Pure. Sizes are bytes of the master's log.
"""

from __future__ import annotations

from typing import Final

WORTH_A_TASK_BYTES: Final = 16 * 1024 * 1024
"""Less than this is read in less time than a second task takes to start, and would leave a second small file."""

LONGER_BY: Final = 8
"""A split may be longer by this part of what it should be: a further one for each core would cost more. A batch ends
with the record that its limit falls into, so that one of four full splits is longer than these.
"""


def longest(most_bytes: int) -> int:
    """What a split takes that should take `most_bytes` at most."""
    return most_bytes + most_bytes // LONGER_BY


def split_bytes(total_bytes: int, *, most_bytes: int, cores: int) -> int:
    """What each split of a batch of `total_bytes` takes; at most `longest` of `most_bytes`.

    Where every core can have what is worth a task, their number is a multiple of `cores`: a task left over would keep
    the others waiting for its whole length.
    """
    splits = max(-(-total_bytes // longest(most_bytes)), 1)
    if total_bytes >= cores * WORTH_A_TASK_BYTES:
        splits = -(-splits // cores) * cores
    else:
        splits = max(splits, total_bytes // WORTH_A_TASK_BYTES)
    return max(-(-total_bytes // splits), 1)
