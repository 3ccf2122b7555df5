"""How the planner of a group polls one master, and how the job hears of it.

A poll asks a master for the bounds of all its logs in one request. A `Poller` remembers the answers, and a `Teller`
writes them to the file that the job reads (`sources.group.standing`). The planner polls when it plans. While a batch
takes long, or the next is not due, a thread of its process polls instead, and only for the job: nothing is planned from
these polls.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from sources.bounds import EARLIEST, StartingOffset, check_position, resolve_offset
from sources.errors import LogtwinError
from sources.group import standing
from sources.group.asking import Asker
from sources.group.standing import UNLISTED, ListedLog, Seen, Sighting, path_beside, write_seen
from sources.master import AskedInSteps, Holding, LogQuery, Master, MasterLog
from sources.offsets import LogId, Offset, OffsetRange
from sources.steps import Steps

logger = logging.getLogger(__name__)

POLL_AFTER_S: Final = 1.5
"""How long after the last poll of a master the job gets one of its own: longer than a planner waits that plans every
second."""


@dataclass(frozen=True, slots=True)
class PollResult:
    """The bounds of a log, and where reading begins or continues."""

    bounds: OffsetRange
    start: Offset


@dataclass(frozen=True, slots=True)
class PollRequest:
    """What to ask of one log: `listed` is what the job says of it, `known` its end at an earlier poll."""

    listed: ListedLog
    known: Offset | None


PollResults = Mapping[str, PollResult | LogtwinError]
"""By log id."""


class Poller:
    """Polls one master, whose logs are read from `starting_offset` if nothing was read before.

    Its calls may block for ever, so make each in a thread that may. From any thread.
    """

    def __init__(self, master: Master, starting_offset: StartingOffset) -> None:
        self._master = master
        self._in_steps = master if isinstance(master, AskedInSteps) else None
        self._starting_offset = starting_offset
        self._noting = threading.Lock()  # guards what follows
        self._seen: dict[str, tuple[Sighting, float]] = {}
        self._wanted: Iterable[str] = ()
        self._asking = 0
        self._asked_s = 0.0

    @property
    def master_id(self) -> str:
        """The id of its only log, or what the ids of its logs have before their last slash."""
        return str(self._master.id)

    def log(self, log_id: str) -> MasterLog | None:
        """Return the log with that id; None if it is another master's."""
        wanted = LogId.parse(log_id)
        return self._master.log(wanted) if wanted.master == self._master.id else None

    def poll(self, wanted: Mapping[str, PollRequest]) -> PollResults:
        """Return the bounds of its logs, also of those not `wanted`: the job may not know of them yet.

        Raises LogtwinError if one error concerns all of them.
        """
        with self._noting:
            self._asking += 1
        try:
            self._note_asked(wanted)
            answer = self._master.poll(_queries(wanted))
            return self._results(wanted, answer, time.monotonic())
        finally:
            with self._noting:
                self._asking -= 1

    def poll_in_steps(self, wanted: Mapping[str, PollRequest]) -> Steps[PollResults | None] | None:
        """`poll` in steps, as in `sources.master.AskedInSteps`; None if that cannot be.

        The caller may be busy when the answer comes, so a poll in steps keeps nobody else from polling.
        """
        if self._in_steps is None or any(one.listed.position is None for one in wanted.values()):
            return None  # where a log begins, its master may have to be asked again
        steps = self._in_steps.poll_in_steps(_queries(wanted))
        return None if steps is None else self._poll_in_steps(wanted, steps)

    def _poll_in_steps(
        self, wanted: Mapping[str, PollRequest], steps: Steps[Mapping[LogId, Holding] | None]
    ) -> Steps[PollResults | None]:
        asked_s = self._note_asked(wanted)
        answer = yield from steps
        # It may have waited to be taken, so it counts as being as old as the request.
        return None if answer is None else self._results(wanted, answer, asked_s)

    def _note_asked(self, wanted: Mapping[str, PollRequest]) -> float:
        with self._noting:
            self._asked_s = time.monotonic()
            self._wanted = wanted.keys()
            return self._asked_s

    def _results(
        self, wanted: Mapping[str, PollRequest], answer: Mapping[LogId, Holding | LogtwinError], at_s: float
    ) -> PollResults:
        """Return what `answer` says of each log; note it as seen at `at_s`, unless something newer is noted."""
        others = {
            str(log_id): PollResult(one.bounds, one.bounds.start)
            for log_id, one in answer.items()
            if isinstance(one, Holding)
        }
        asked = {LogId.parse(log_id): one.listed.position for log_id, one in wanted.items()}
        results = others | {
            str(log_id): self._result(log_id, position, answer.get(log_id)) for log_id, position in asked.items()
        }
        with self._noting:
            for log_id, one in results.items():
                if isinstance(one, PollResult) and (log_id not in self._seen or self._seen[log_id][1] <= at_s):
                    turn = wanted[log_id].listed.turn if log_id in wanted else UNLISTED
                    self._seen[log_id] = (self._sighting(log_id, one.bounds, turn), at_s)
        return results

    def _sighting(self, log_id: str, bounds: OffsetRange, turn: int) -> Sighting:
        """Return the sighting: the same object as before if nothing has changed, so that comparing is cheap."""
        before = self._seen.get(log_id)
        if before is not None and before[0].turn == turn and before[0].bounds == bounds:
            return before[0]
        return Sighting(bounds, turn)

    def seen_since(self, then_s: float) -> dict[str, Sighting]:
        """Return what was seen since `then_s` of `time.monotonic`."""
        with self._noting:
            return {log_id: one for log_id, (one, at_s) in self._seen.items() if at_s >= then_s}

    def due(self, now_s: float, listed: Mapping[str, ListedLog]) -> dict[str, PollRequest]:
        """Return what to poll again of the `listed` logs: nothing while a poll is pending, or soon after the last."""
        with self._noting:
            if self._asking or now_s - self._asked_s < POLL_AFTER_S:
                return {}
            return {
                log_id: PollRequest(listed[log_id], self._seen[log_id][0].bounds.end if log_id in self._seen else None)
                for log_id in self._wanted
                if log_id in listed
            }

    def is_waited_for(self) -> bool:
        """Whether producers wait for this replica. Raises as `Master.is_waited_for`."""
        return self._master.is_waited_for()

    @property
    def may_begin_later(self) -> bool:
        """Whether a log that was never read begins at whatever is oldest then; otherwise the first poll decides."""
        return self._starting_offset == EARLIEST

    def _result(
        self, log_id: LogId, position: Offset | None, found: Holding | LogtwinError | None
    ) -> PollResult | LogtwinError:
        if isinstance(found, LogtwinError):
            return found
        bounds = None if found is None else found.bounds
        try:
            if position is not None or bounds is None:
                start = position or Offset(0)
                return PollResult(check_position(start, bounds, log=log_id), start)
            return PollResult(bounds, resolve_offset(self._starting_offset, bounds, self._master.log(log_id)))
        except LogtwinError as error:
            return error


def _queries(wanted: Mapping[str, PollRequest]) -> dict[LogId, LogQuery]:
    return {
        LogId.parse(log_id): LogQuery(one.listed.identity, one.listed.position, one.known)
        for log_id, one in wanted.items()
    }


TICK_S: Final = 0.5
TELL_EVERY_S: Final = 1.0
FORGET_AFTER_S: Final = 5.0
"""Nothing is told of a log after this time without an answer: or the job would think that the log does not grow."""


class Teller:
    """Tells the job, whose standing is at `path`, what the planner's pollers have seen."""

    def __init__(self, path: Path) -> None:
        self._pollers: list[Poller] = []
        self._standing = standing.file_at(path)
        self._path = path_beside(path)
        self._asker: Asker[int] = Asker()
        self._told: Seen | None = None
        self._tell_s = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tells what is seen", daemon=True)

    def add(self, pollers: Iterable[Poller]) -> None:
        """Tell what `pollers` see, too."""
        self._pollers = [*self._pollers, *pollers]  # anew: the thread may be going through them

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Idempotent."""
        self._stopping.set()

    def _run(self) -> None:
        is_told = True
        while not self._stopping.wait(TICK_S):
            try:
                self.tick(time.monotonic())
                is_told = True
            except (OSError, ValueError) as error:
                if is_told:
                    logger.warning("the job cannot be told what its masters hold: %s", error)
                is_told = False

    def tick(self, now_s: float) -> None:
        """Poll what was not polled lately, and tell what has changed. Raises OSError, ValueError."""
        self._asker.take(0)  # an error is for the planner to report, when it polls
        said = self._standing.read()
        if said.is_stopping:  # the job takes the files away
            return
        for at, poller in enumerate(self._pollers):
            if not self._asker.is_asking(at) and (wanted := poller.due(now_s, said.positions)):
                self._asker.ask(at, partial(poller.poll, wanted), poller.poll_in_steps(wanted))
        if now_s >= self._tell_s:
            self._tell(now_s)

    def _tell(self, now_s: float) -> None:
        seen: dict[str, Sighting] = {}
        for poller in self._pollers:
            seen |= poller.seen_since(now_s - FORGET_AFTER_S)
        if seen != self._told:
            write_seen(self._path, seen)
            self._told = seen
            self._tell_s = now_s + TELL_EVERY_S
