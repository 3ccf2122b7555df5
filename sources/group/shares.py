"""How the bytes of a batch are shared among logs: equally, and what the small ones leave goes to the others.

Pure. Sizes are bytes of the masters' logs.
"""

from __future__ import annotations

from collections.abc import Mapping


def shares(backlogs: Mapping[str, int], budget_bytes: int) -> dict[str, int]:
    """What each log may read of a batch of `budget_bytes`, at least 1: of each that has a backlog, at least 1.

    No share is above its backlog, and none of those that get less than theirs is smaller than another one, but for a
    byte. All of them together are `budget_bytes`, or everything there is; more only where there are more logs than
    bytes, of which each gets one. A log that has nothing has no share.
    """
    waiting = sorted(((size, log) for log, size in backlogs.items() if size > 0))
    found: dict[str, int] = {}
    left = budget_bytes
    for served, (size, log) in enumerate(waiting):
        found[log] = max(1, min(size, left // (len(waiting) - served)))
        left = max(0, left - found[log])
    return found
