"""The check that a partition's log still is the one that was read, by the epochs of its leaders (KIP-320). Pure.

Each leader writes in an epoch of its own, higher than the one before, and every batch names the epoch in which it was
written. A leader that is asked where an epoch ends answers with the largest epoch it knows up to that one, and with the
offset where the next larger one begins or its log ends. What was read in epoch E up to a position is still there
exactly if

    answered epoch = E    and    answered end >= position

A Kafka broker lets its own followers go on under this condition (KIP-595, the diverging epoch of a fetch).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sources.errors import AboveMaximum, Rewritten
from sources.offsets import LogId, Offset, OffsetRange

_HINT: Final = (
    "An unclean election, or a broker that came back without its disk, took the log back. What was replicated stays as "
    "it is; to follow what the broker has now, replicate the topic under another name of the cluster."
)


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The end, at the leader, of the largest epoch up to the requested one. Both are -1 if it knows no such epoch.

    The largest epoch that it knows ends where its log does.
    """

    epoch: int
    end: Offset

    def __str__(self) -> str:
        return f"epoch {self.epoch} up to {self.end}" if self.epoch >= 0 else "no such epoch"


def check_history(epoch: int | None, position: Offset, found: EpochEnd, bounds: OffsetRange, log: LogId | None) -> None:
    """Check that what was read below `position`, whose last batch is of `epoch`, is still what the leader has.

    `position` is where that batch ends, or lies behind it in the same epoch. In a hole further on another epoch may
    have begun of which nothing is left, and that would look like a cut. `found` is the leader's answer about `epoch`,
    `bounds` what it holds. Without an epoch only the end of the log tells. Raises AboveMaximum if the log ends below
    `position`; Rewritten if it goes on with another history, at the offset from which on it is not known to be the
    same: the end of `epoch`, if the leader still has that one.
    """
    if bounds.end < position:
        raise AboveMaximum(
            "the partition's log ends below what was read of it",
            log=log,
            offset=position,
            expected=f"an end at or after {position}",
            found=f"{bounds.end}",
            hint=_HINT,
        )
    if epoch is not None and (found.epoch != epoch or found.end < position):
        raise Rewritten(
            "the partition's log was cut below what was read of it, and goes on with other records",
            log=log,
            offset=found.end if found.epoch == epoch else min(bounds.start, position),
            expected=f"leader epoch {epoch} up to {position} or more",
            found=str(found),
            hint=_HINT,
        )
