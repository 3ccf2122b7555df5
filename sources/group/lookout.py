"""What the planner of a group asks of one master: where the logs that it has end now, in one question for all of them.

Of most masters that is one log; a topic has one for each partition, and its brokers are asked for all at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sources.bounds import check_within
from sources.errors import LogtwinError
from sources.group.standing import Place
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange
from sources.options import EARLIEST, StartingOffset
from sources.starting import resolved


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look has found: what the master holds of a log, and where reading begins or goes on."""

    held: OffsetRange
    start: Offset


@dataclass(frozen=True, slots=True)
class Looking:
    """What is to be looked for of one log: `place` is where it stands, `known` where it ended at an earlier look."""

    place: Place
    known: Offset | None


Found = Mapping[str, Seen | LogtwinError]
"""By log id."""


class Lookout(Protocol):
    """One master. Its calls may take for ever; each is made by a thread that may."""

    def log(self, log_id: str) -> MasterLog | None:
        """The log of that id; None of another master's."""

    def look(self, wanted: Mapping[str, Looking]) -> Found:
        """What it holds of each log that is `wanted`. Raises LogtwinError where that is the same for all."""

    def is_waited_for(self) -> bool:
        """Whether producers wait for this replica. Raises as `MasterLog.is_waited_for`."""

    @property
    def may_begin_later(self) -> bool:
        """Whether a log that was never read begins at whatever is oldest then; else the first look says where."""


class LogLookout:
    """The lookout of a master with one log, which is read from `starting_offset` where nothing was read before."""

    def __init__(self, log: MasterLog, starting_offset: StartingOffset) -> None:
        self._log = log
        self._starting_offset = starting_offset

    def log(self, log_id: str) -> MasterLog | None:
        return self._log if log_id == str(self._log.log_id) else None

    def look(self, wanted: Mapping[str, Looking]) -> Found:
        return {log_id: self._look(one.place.position, one.known) for log_id, one in wanted.items()}

    def is_waited_for(self) -> bool:
        return self._log.is_waited_for()

    @property
    def may_begin_later(self) -> bool:
        return self._starting_offset == EARLIEST

    def _look(self, start: Offset | None, known: Offset | None) -> Seen:
        bounds = self._log.bounds(known)
        if start is None:
            return Seen(bounds, resolved(self._starting_offset, bounds, self._log))
        check_within(OffsetRange(start, start), bounds, log=self._log.log_id)
        return Seen(bounds, start)
