"""The bounds of a log: what its master holds now, where reading it begins, and when its front is deleted. Pure.

Masters delete from the front, whole files at a time (RocketMQ: segment files; a file of one offset if a master deletes
record by record). So the data at a position is lost when the file that holds it goes.

There is no damage at the end of a log in files: what follows may still be written, or be taken back by whoever writes
the log. So the log ends before it, whatever is to be done about losses, and the reader waits; that is a doubt, and told
once. Damage is only what the log has gone on behind.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from sources.errors import AboveMaximum, BelowMinimum, LogtwinError
from sources.offsets import Offset, OffsetRange

if TYPE_CHECKING:
    from sources.master import MasterLog

_logger = logging.getLogger(__name__)

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
StartingOffset = Literal["earliest", "latest"] | int
"""Where to begin to read a log of which nothing was read."""

_DELETED: Final = (
    "Its retention deleted it first. Read a copy of the old segment files by path, or start a new replica at earliest."
)
_DELETED_BY_KAFKA: Final = (
    "Retention, or somebody who deleted records, was faster than the reader. What lies before is gone: start anew at "
    "earliest."
)


def check_within(wanted: OffsetRange, bounds: OffsetRange, *, log: object = None, kind: str | None = None) -> None:
    """Raise BelowMinimum or AboveMaximum unless all of `wanted` lies within `bounds`, which the master's log has now.

    `kind` is that of the log, if `log` does not say it; what to do about deleted offsets depends on it.
    """
    if wanted.start < bounds.start:
        raise BelowMinimum(
            "the master no longer holds this offset",
            log=log,
            offset=wanted.start,
            expected=f"{bounds.start} or more: the master holds {bounds}",
            found=wanted.start,
            hint=_DELETED_BY_KAFKA if "kafka" in (kind, str(log).partition("/")[0]) else _DELETED,
        )
    if wanted.end > bounds.end:
        offset = wanted.start if wanted.start > bounds.end else wanted.end
        raise AboveMaximum(
            "the master's log ends before this offset",
            log=log,
            offset=offset,
            expected=f"{bounds.end} or less: the master holds {bounds}",
            found=offset,
            hint="It lost its tail, or this is another master's log: check the address, and compare the log with the "
            "replica before you go on.",
        )


def check_position(position: Offset, bounds: OffsetRange | None, *, log: object) -> OffsetRange:
    """Return `bounds` if `log` can be read from `position` on; they are None if the master has no such log.

    Raises BelowMinimum or AboveMaximum; the latter also if there is no such log.
    """
    if bounds is None:
        raise AboveMaximum(
            "the master has no such log any more",
            log=log,
            offset=position,
            expected=str(log),
            found="none of this name",
            hint="Kafka takes no partition away: a broker may lag behind, so try again; or it lost its disk.",
        )
    check_within(OffsetRange(position, position), bounds, log=log)
    return bounds


def resolve_offset(wanted: StartingOffset, bounds: OffsetRange, log: MasterLog) -> Offset:
    """Return the offset that `wanted` means in `log`, which has these `bounds`: a record boundary if the log can tell.

    Raises BelowMinimum or AboveMaximum for an offset outside of them, and as `MasterLog.boundary_after` does.
    """
    if wanted == EARLIEST:
        return bounds.start
    if wanted == LATEST:
        return bounds.end
    offset = Offset(int(wanted))
    check_within(OffsetRange(offset, offset), bounds, log=log.log_id)
    return log.boundary_after(offset, bounds.end)


@dataclass(frozen=True, slots=True)
class UntilLoss:
    """How far a replica is from losing data.

    `bytes`: what the master may still delete from its front before it reaches the first byte that is not replicated.
    `seconds`: an estimate of the earliest time until then; 0 if it may happen now, None if nothing tells.
    """

    bytes: int
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterRetention:
    """How a master deletes, by its own answer at one moment.

    `keeps_s`: a file whose newest record is older than this is deleted; None if age does not matter. `room_bytes`: what
    the master may still write before lack of space makes it delete, whatever the age; None if unknown.
    """

    file_size_bytes: int
    keeps_s: float | None
    room_bytes: int | None

    def until_loss(
        self,
        bounds: OffsetRange,
        position: Offset,
        *,
        age_s: float | None,
        growth_bytes_per_s: float | None,
    ) -> UntilLoss | None:
        """Return what a replica at `position` has left before a master that holds `bounds` deletes it; None if no risk.

        `age_s`: how long ago the record at `position` was stored, at most. `growth_bytes_per_s`: how fast the master's
        log grows. What already lies below the master's minimum is lost: 0 bytes, 0 s. Where age matters and is unknown,
        as before the first commit, only a lack of space that comes before any record is too old tells.
        """
        if position >= bounds.end:
            return None
        if position < bounds.start:
            return UntilLoss(0, 0.0)
        file_start = position - position % self.file_size_bytes
        bytes_left = max(file_start - bounds.start, 0)
        by_age_s = None if self.keeps_s is None else self.keeps_s - (age_s or 0.0)
        by_space_s = self._by_space_s(bytes_left, growth_bytes_per_s)
        if age_s is None and by_age_s is not None and (by_space_s is None or by_space_s > by_age_s):
            return UntilLoss(bytes_left, None)
        ends_s = [at for at in (by_age_s, by_space_s) if at is not None]
        return UntilLoss(bytes_left, max(min(ends_s), 0.0) if ends_s else None)

    def _by_space_s(self, bytes_left: int, growth_bytes_per_s: float | None) -> float | None:
        if self.room_bytes is None or not growth_bytes_per_s:
            return None
        return (self.room_bytes + bytes_left) / growth_bytes_per_s


@dataclass(slots=True)
class ToldDoubt:
    """The doubt at the end of a log that was told last."""

    _told: tuple[Offset, str] | None = None

    def is_told(self, end: Offset, doubt: LogtwinError) -> bool:
        return self._told == (end, str(doubt))

    def tell(self, path: Path, end: Offset, doubt: LogtwinError, named: LogtwinError | None = None) -> None:
        """Warn that the log in `path` ends at `end`, because of `doubt`; `named` says more of where that is."""
        self._told = (end, str(doubt))
        _logger.warning("%s: until its master goes on, the log ends at %d, before this: %s", path, end, named or doubt)
