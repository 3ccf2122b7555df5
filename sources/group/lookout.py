"""What the planner of a group asks one master: where its logs end now, all of them in one question.

Most masters have one log. A topic has one per partition, and its brokers are asked for all of them at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sources.bounds import check_within
from sources.errors import LogtwinError
from sources.group.standing import ReadingPlace
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange
from sources.options import EARLIEST, StartingOffset
from sources.starting import resolved


@dataclass(frozen=True, slots=True)
class LookResult:
    """The result of a look: what the master holds of a log, and where reading begins or continues."""

    held: OffsetRange
    start: Offset


@dataclass(frozen=True, slots=True)
class LookRequest:
    """What to look for in one log: `place` is its position, `known` where the log ended at an earlier look."""

    place: ReadingPlace
    known: Offset | None


Found = Mapping[str, LookResult | LogtwinError]
"""The results of a look by log id."""


class Lookout(Protocol):
    """A view of one master. Its calls may block for ever, so each is made in a thread that may."""

    @property
    def master_id(self) -> str:
        """The id of its only log, or what the ids of its logs have before their last slash."""

    def log(self, log_id: str) -> MasterLog | None:
        """Return the log with that id; None if it is another master's."""

    def look(self, wanted: Mapping[str, LookRequest]) -> Found:
        """Return what the master holds of each `wanted` log. Raises LogtwinError if one error concerns all of them."""

    def is_waited_for(self) -> bool:
        """Whether producers wait for this replica. Raises as `MasterLog.is_waited_for`."""

    @property
    def may_begin_later(self) -> bool:
        """Whether a log that was never read begins at whatever is oldest then; otherwise the first look decides."""


class LogLookout:
    """The lookout of a master with one log, which is read from `starting_offset` if nothing was read before."""

    def __init__(self, log: MasterLog, starting_offset: StartingOffset) -> None:
        self._log = log
        self._starting_offset = starting_offset

    @property
    def master_id(self) -> str:
        return str(self._log.log_id)

    def log(self, log_id: str) -> MasterLog | None:
        return self._log if log_id == str(self._log.log_id) else None

    def look(self, wanted: Mapping[str, LookRequest]) -> Found:
        return {log_id: self._look(one.place.position, one.known) for log_id, one in wanted.items()}

    def is_waited_for(self) -> bool:
        return self._log.is_waited_for()

    @property
    def may_begin_later(self) -> bool:
        return self._starting_offset == EARLIEST

    def _look(self, start: Offset | None, known: Offset | None) -> LookResult:
        bounds = self._log.bounds(known)
        if start is not None and bounds.end < start:
            bounds = self._log.bounds(start)
        if start is None:
            return LookResult(bounds, resolved(self._starting_offset, bounds, self._log))
        check_within(OffsetRange(start, start), bounds, log=self._log.log_id)
        return LookResult(bounds, start)
