"""What the planner of a group sees of one master, and how the job is told of it.

A `Lookout` asks a master where its logs end now: all of them in one question. It remembers the answers, and a `Teller`
writes them to the file that the job reads (`sources.group.standing`). The planner looks when it plans. While a batch
takes long, or the next is not due, a thread of its process looks instead, and only for the job: nothing is planned from
these looks.
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

from sources.bounds import EARLIEST, StartingOffset, held_from, resolved
from sources.errors import LogtwinError
from sources.group import standing
from sources.group.asking import Asker
from sources.group.standing import UNLISTED, ReadingPlace, Seen, Sighting, path_beside, write_seen
from sources.master import AskedInSteps, Holding, LogQuery, Master, MasterLog
from sources.offsets import LogId, Offset, OffsetRange
from sources.steps import Steps

logger = logging.getLogger(__name__)

LOOK_AFTER_S: Final = 1.5
"""How long after the last look at a master the next one is made for the job: later than a planner looks that plans
every second."""


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


class Lookout:
    """A view of one master, whose logs are read from `starting_offset` if nothing was read before.

    Its calls may block for ever, so each is made in a thread that may: any.
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

    def look(self, wanted: Mapping[str, LookRequest]) -> Found:
        """Return what the master holds of its logs, also of those not `wanted`: the job may not know of them yet.

        Raises LogtwinError if one error concerns all of them.
        """
        with self._noting:
            self._asking += 1
        try:
            self._note_asked(wanted)
            held = self._master.held(_queries(wanted))
            return self._found(wanted, held, time.monotonic())
        finally:
            with self._noting:
                self._asking -= 1

    def look_in_steps(self, wanted: Mapping[str, LookRequest]) -> Steps[Found | None] | None:
        """`look` in steps, as in `sources.master.AskedInSteps`; None if that cannot be.

        Whoever asks so may be busy when the answer comes, so this keeps nobody else from asking.
        """
        if self._in_steps is None or any(one.place.position is None for one in wanted.values()):
            return None  # where a log begins, its master may have to be asked again
        steps = self._in_steps.held_in_steps(_queries(wanted))
        return None if steps is None else self._look_in_steps(wanted, steps)

    def _look_in_steps(
        self, wanted: Mapping[str, LookRequest], steps: Steps[Mapping[LogId, Holding] | None]
    ) -> Steps[Found | None]:
        asked_s = self._note_asked(wanted)
        held = yield from steps
        # the answer may have waited to be taken: what it says is as old as the question, at most
        return None if held is None else self._found(wanted, held, asked_s)

    def _note_asked(self, wanted: Mapping[str, LookRequest]) -> float:
        with self._noting:
            self._asked_s = time.monotonic()
            self._wanted = wanted.keys()
            return self._asked_s

    def _found(
        self, wanted: Mapping[str, LookRequest], held: Mapping[LogId, Holding | LogtwinError], at_s: float
    ) -> Found:
        """What `held` says of each log; noted as seen at `at_s`, where nothing newer is."""
        others = {
            str(log_id): LookResult(one.bounds, one.bounds.start)
            for log_id, one in held.items()
            if isinstance(one, Holding)
        }
        asked = {LogId.parse(log_id): one.place.position for log_id, one in wanted.items()}
        found = others | {
            str(log_id): self._result(log_id, position, held.get(log_id)) for log_id, position in asked.items()
        }
        with self._noting:
            for log_id, one in found.items():
                if isinstance(one, LookResult) and (log_id not in self._seen or self._seen[log_id][1] <= at_s):
                    turn = wanted[log_id].place.turn if log_id in wanted else UNLISTED
                    self._seen[log_id] = (self._noted(log_id, one.held, turn), at_s)
        return found

    def _noted(self, log_id: str, held: OffsetRange, turn: int) -> Sighting:
        """Return the sighting, the same object as before if it is the same: then what is told is compared at once."""
        before = self._seen.get(log_id)
        if before is not None and before[0].turn == turn and before[0].held == held:
            return before[0]
        return Sighting(held, turn)

    def seen_since(self, then_s: float) -> dict[str, Sighting]:
        """Return what was seen since `then_s` of `time.monotonic`."""
        with self._noting:
            return {log_id: one for log_id, (one, at_s) in self._seen.items() if at_s >= then_s}

    def due(self, now_s: float, places: Mapping[str, ReadingPlace]) -> dict[str, LookRequest]:
        """Return what to look for again, at `places`: nothing if somebody is looking, or was not long ago."""
        with self._noting:
            if self._asking or now_s - self._asked_s < LOOK_AFTER_S:
                return {}
            return {
                log_id: LookRequest(places[log_id], self._seen[log_id][0].held.end if log_id in self._seen else None)
                for log_id in self._wanted
                if log_id in places
            }

    def is_waited_for(self) -> bool:
        """Whether producers wait for this replica. Raises as `Master.is_waited_for`."""
        return self._master.is_waited_for()

    @property
    def may_begin_later(self) -> bool:
        """Whether a log that was never read begins at whatever is oldest then; otherwise the first look decides."""
        return self._starting_offset == EARLIEST

    def _result(
        self, log_id: LogId, position: Offset | None, found: Holding | LogtwinError | None
    ) -> LookResult | LogtwinError:
        if isinstance(found, LogtwinError):
            return found
        held = None if found is None else found.bounds
        try:
            if position is not None or held is None:
                start = position or Offset(0)
                return LookResult(held_from(start, held, log=log_id), start)
            return LookResult(held, resolved(self._starting_offset, held, self._master.log(log_id)))
        except LogtwinError as error:
            return error


def _queries(wanted: Mapping[str, LookRequest]) -> dict[LogId, LogQuery]:
    return {
        LogId.parse(log_id): LogQuery(one.place.identity, one.place.position, one.known)
        for log_id, one in wanted.items()
    }


TICK_S: Final = 0.5
TELL_EVERY_S: Final = 1.0
FORGET_AFTER_S: Final = 5.0
"""After this time without an answer nothing is told of a log: the job must not take its silence for standing still."""


class Teller:
    """Tells what is seen through the lookouts that the planner uses to the job with the standing at `path`."""

    def __init__(self, path: Path) -> None:
        self._lookouts: list[Lookout] = []
        self._standing = standing.file_at(path)
        self._path = path_beside(path)
        self._asker: Asker[int] = Asker()
        self._told: Seen | None = None
        self._tell_s = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tells what is seen", daemon=True)

    def add(self, lookouts: Iterable[Lookout]) -> None:
        """Tell what is seen through `lookouts`, too."""
        self._lookouts = [*self._lookouts, *lookouts]  # anew: the thread may be going through them

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
        """Look where nobody has looked lately, and tell what has changed. Raises OSError, ValueError."""
        self._asker.take(0)  # an error is the planner's to report, when it looks
        said = self._standing.read()
        if said.is_stopping:  # the job takes the files away
            return
        for at, lookout in enumerate(self._lookouts):
            if not self._asker.is_asking(at) and (wanted := lookout.due(now_s, said.positions)):
                self._asker.ask(at, partial(lookout.look, wanted), lookout.look_in_steps(wanted))
        if now_s >= self._tell_s:
            self._tell(now_s)

    def _tell(self, now_s: float) -> None:
        seen: dict[str, Sighting] = {}
        for lookout in self._lookouts:
            seen |= lookout.seen_since(now_s - FORGET_AFTER_S)
        if seen != self._told:
            write_seen(self._path, seen)
            self._told = seen
            self._tell_s = now_s + TELL_EVERY_S
