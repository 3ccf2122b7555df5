"""How a batch's bytes are shared among logs: equally, with what the small ones leave over going to the others.

Pure. Sizes are bytes of the masters' logs.
"""

from __future__ import annotations

from collections.abc import Mapping


def shares(backlogs: Mapping[str, int], budget_bytes: int) -> dict[str, int]:
    """Return how many bytes each log may read of a batch of `budget_bytes`: at least 1 for each with a backlog.

    No share exceeds its backlog, and a share below its backlog is as large as any other, give or take a byte.
    The shares add up to `budget_bytes`, or to everything there is; to more only if there are more logs than bytes, as
    each gets one. A log without a backlog has no share.
    """
    waiting = sorted(((size, log) for log, size in backlogs.items() if size > 0))
    found: dict[str, int] = {}
    left = budget_bytes
    for served, (size, log) in enumerate(waiting):
        found[log] = max(1, min(size, left // (len(waiting) - served)))
        left = max(0, left - found[log])
    return found
