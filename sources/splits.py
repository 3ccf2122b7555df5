"""How many splits a batch is cut into: every core gets one, all take as long, and a small batch is one file.

Pure. Sizes are bytes of the master's log.
"""

from __future__ import annotations

from typing import Final

WORTH_A_TASK_BYTES: Final = 16 * 1024 * 1024
"""A smaller split is read in less time than a second task takes to start, and would leave another small file."""

SMALL_BYTES: Final = 64 * 1024
"""Of a smaller split, reading takes less time than all that is done once for it."""

LONGER_BY: Final = 8
"""A split may exceed its target by this fraction (1/8), because one more split per core would cost more.

A batch ends with the record that its limit falls into, so a batch of four full splits is a
little longer than four of them.
"""


def longest(most_bytes: int) -> int:
    """Return the largest size of a split that should take at most `most_bytes`."""
    return most_bytes + most_bytes // LONGER_BY


def split_bytes(total_bytes: int, *, most_bytes: int, cores: int) -> int:
    """Return the size of each split of a batch of `total_bytes`; at most `longest` of `most_bytes`.

    If there is enough for every core, the number of splits is a multiple of `cores`: a left-over task would keep the
    others waiting for its whole length.
    """
    splits = max(-(-total_bytes // longest(most_bytes)), 1)
    if total_bytes >= cores * WORTH_A_TASK_BYTES:
        splits = -(-splits // cores) * cores
    else:
        splits = max(splits, total_bytes // WORTH_A_TASK_BYTES)
    return max(-(-total_bytes // splits), 1)
