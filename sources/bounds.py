"""The check that a log holds what is asked for; only this module says how it does not."""

from __future__ import annotations

from typing import Final

from sources.errors import AboveMaximum, BelowMinimum
from sources.offsets import OffsetRange

_DELETED: Final = (
    "Its retention deleted it first. Read a copy of the old segment files by path, or start a new replica at earliest."
)


def check_within(wanted: OffsetRange, held: OffsetRange, *, log: object = None, below: str = _DELETED) -> None:
    """Raise BelowMinimum or AboveMaximum unless all of `wanted` lies in `held`, what the master's log holds now.

    `below` is the hint for deleted offsets.
    """
    if wanted.start < held.start:
        raise BelowMinimum(
            "the master no longer holds this offset",
            log=log,
            offset=wanted.start,
            expected=f"{held.start} or more: the master holds {held}",
            found=wanted.start,
            hint=below,
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
