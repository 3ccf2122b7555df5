"""Is the master the one that the replica's promise is for?

Asked before the first promise of a run and of each connection: a broker that comes back may have lost its tail, may
hold other bytes at the same offsets, or may be another one. What is read later is proven where it is read
(`sinks/tasks.py`).
"""

from __future__ import annotations

from contextlib import suppress

from sinks.continuity import Link
from sources.bounds import check_within
from sources.errors import BelowMinimum, LogtwinError, Recreated
from sources.loss import Condition
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange


def prove_master(master: MasterLog, position: Offset, link: Link | None) -> None:
    """That `master` still holds what the replica, at `position`, took from it last; asks it anew.

    What its retention has deleted meanwhile cannot be compared, and contradicts nothing. Raises AboveMaximum,
    Rewritten, Recreated; and whatever keeps the master from answering.
    """
    bounds = master.bounds()
    if bounds.is_empty and bounds.start != position:
        raise _recreated(master, position, bounds)
    with suppress(BelowMinimum):
        check_within(OffsetRange(position, position), bounds, log=master.log_id)
        if link is not None:
            _compare(master, position, link)


def _compare(master: MasterLog, position: Offset, link: Link) -> None:
    raw = b"".join(map(bytes, master.raw(link.range, committed=position)))
    try:
        link.check(raw)
    except LogtwinError as error:
        raise error.at(master.log_id) from error


def _recreated(master: MasterLog, position: Offset, bounds: OffsetRange) -> Recreated:
    return Recreated(
        "the master's log is empty, and the replica is not",
        log=master.log_id,
        offset=position,
        expected=f"a log that holds offset {position}",
        found=f"{bounds}",
        hint=Condition.RECREATED.hint,
    )
