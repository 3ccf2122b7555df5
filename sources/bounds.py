"""The check that a log holds what is asked for; only this module says how it does not."""

from __future__ import annotations

from typing import Final

from sources.errors import AboveMaximum, BelowMinimum
from sources.offsets import Offset, OffsetRange

_DELETED: Final = (
    "Its retention deleted it first. Read a copy of the old segment files by path, or start a new replica at earliest."
)
_DELETED_BY_KAFKA: Final = (
    "Retention, or somebody who deleted records, was faster than the reader. What lies before is gone: start anew at "
    "earliest."
)


def check_within(wanted: OffsetRange, held: OffsetRange, *, log: object = None, kind: str | None = None) -> None:
    """Raise BelowMinimum or AboveMaximum unless all of `wanted` lies in `held`, what the master's log holds now.

    `kind` is that of the log, if `log` does not say it; what to do about deleted offsets depends on it.
    """
    if wanted.start < held.start:
        raise BelowMinimum(
            "the master no longer holds this offset",
            log=log,
            offset=wanted.start,
            expected=f"{held.start} or more: the master holds {held}",
            found=wanted.start,
            hint=_DELETED_BY_KAFKA if "kafka" in (kind, str(log).partition("/")[0]) else _DELETED,
        )
    if wanted.end > held.end:
        offset = wanted.start if wanted.start > held.end else wanted.end
        raise AboveMaximum(
            "the master's log ends before this offset",
            log=log,
            offset=offset,
            expected=f"{held.end} or less: the master holds {held}",
            found=offset,
            hint="It lost its tail, or this is another master's log: check the address, and compare the log with the "
            "replica before you go on.",
        )


def held_from(position: Offset, held: OffsetRange | None, *, log: object) -> OffsetRange:
    """Return `held`, what a master holds of `log`, or None if it has none, once `log` can be read on from `position`.

    Raises BelowMinimum or AboveMaximum; the latter also if there is no such log.
    """
    if held is None:
        raise AboveMaximum(
            "the master has no such log any more",
            log=log,
            offset=position,
            expected=str(log),
            found="none of this name",
            hint="Kafka takes no partition away: a broker may lag behind, so try again; or it lost its disk.",
        )
    check_within(OffsetRange(position, position), held, log=log)
    return held
