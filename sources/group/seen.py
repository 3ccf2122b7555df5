"""What the planner tells the job: what the masters of its logs hold. So each master is asked once, for both of them.

It is a small file beside the standing (`sources.group.standing`), for the same reason. The planner looks at the masters
when it plans. While it does not, because a batch takes long or the interval between batches is long, a thread of its
process looks instead, and only for the job: nothing is planned from these looks.
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

from sources.group import standing
from sources.group.asking import Asker
from sources.group.lookout import Found, Lookout, LookRequest, LookResult
from sources.group.told_file import ToldFile, write_whole
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange

UNLISTED: Final = 0
"""The turn of a log that the job has not listed, as a partition that was just added to a topic. Turns begin at 1."""

TICK_S: Final = 0.5
TELL_EVERY_S: Final = 1.0
LOOK_AFTER_S: Final = 1.5
"""How long after the last look at a master the next one is made for the job: later than a planner looks that plans
every second."""

FORGET_AFTER_S: Final = 5.0
"""After this time without an answer nothing is told of a log: the job must not take its silence for standing still."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a master held of a log, when the job had listed the log for the `turn`-th time (`ReadingPlace`)."""

    held: OffsetRange
    turn: int


Seen = Mapping[str, Sighting]
"""The sightings by log id."""


def path_beside(standing_path: Path) -> Path:
    return standing_path.with_name("seen.json")


def write(path: Path, seen: Seen) -> None:
    """Replace the file at `path` with `seen`, atomically. For one thread at a time. Raises OSError."""
    write_whole(path, {log: [one.held.start, one.held.end, one.turn] for log, one in seen.items()})


def file_at(path: Path) -> ToldFile[Seen]:
    """Return the reader of the file at `path`; before there is one, nothing was seen."""
    return ToldFile(path, _parsed, {})


def _parsed(said: Mapping[str, tuple[int, int, int]]) -> Seen:
    return {log: Sighting(OffsetRange(Offset(start), Offset(end)), turn) for log, (start, end, turn) in said.items()}


class NotedLookout(Lookout):
    """A lookout that remembers what was seen through it. From any thread."""

    def __init__(self, lookout: Lookout) -> None:
        self._lookout = lookout
        self._seen: dict[str, tuple[Sighting, float]] = {}
        self._wanted: Iterable[str] = ()
        self._asking = 0
        self._asked_s = 0.0
        self._noting = threading.Lock()

    @property
    def master_id(self) -> str:
        return self._lookout.master_id

    def log(self, log_id: str) -> MasterLog | None:
        return self._lookout.log(log_id)

    def is_waited_for(self) -> bool:
        return self._lookout.is_waited_for()

    @property
    def may_begin_later(self) -> bool:
        return self._lookout.may_begin_later

    def look(self, wanted: Mapping[str, LookRequest]) -> Found:
        with self._noting:
            self._asking += 1
            self._asked_s = time.monotonic()
            self._wanted = wanted.keys()
        try:
            found = self._lookout.look(wanted)
        finally:
            with self._noting:
                self._asking -= 1
        now_s = time.monotonic()
        turns = {log_id: one.place.turn for log_id, one in wanted.items()}
        with self._noting:
            for log_id, one in found.items():
                if isinstance(one, LookResult):
                    self._seen[log_id] = (self._noted(log_id, one.held, turns.get(log_id, UNLISTED)), now_s)
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

    def due(self, now_s: float, places: Mapping[str, standing.ReadingPlace]) -> dict[str, LookRequest]:
        """Return what to look for again, at `places`: nothing if somebody is looking, or was not long ago."""
        with self._noting:
            if self._asking or now_s - self._asked_s < LOOK_AFTER_S:
                return {}
            return {
                log_id: LookRequest(places[log_id], self._seen[log_id][0].held.end if log_id in self._seen else None)
                for log_id in self._wanted
                if log_id in places
            }


class Teller:
    """Tells what is seen through its `lookouts`, which the planner uses, to the job with the standing at `path`."""

    def __init__(self, lookouts: Iterable[Lookout], path: Path) -> None:
        self.lookouts = [NotedLookout(one) for one in lookouts]
        self._standing = standing.file_at(path)
        self._path = path_beside(path)
        self._asker: Asker[int] = Asker()
        self._told: Seen | None = None
        self._tell_s = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tells what is seen", daemon=True)

    def add(self, lookouts: Iterable[Lookout]) -> list[NotedLookout]:
        """Tell what is seen through `lookouts`, too. Returns those for the planner to use, whose thread this is."""
        added = [NotedLookout(one) for one in lookouts]
        self.lookouts = [*self.lookouts, *added]
        return added

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
        for at, lookout in enumerate(self.lookouts):
            if not self._asker.is_asking(at) and (wanted := lookout.due(now_s, said.positions)):
                self._asker.ask(at, partial(lookout.look, wanted))
        if now_s >= self._tell_s:
            self._tell(now_s)

    def _tell(self, now_s: float) -> None:
        seen: dict[str, Sighting] = {}
        for lookout in self.lookouts:
            seen |= lookout.seen_since(now_s - FORGET_AFTER_S)
        if seen != self._told:
            write(self._path, seen)
            self._told = seen
            self._tell_s = now_s + TELL_EVERY_S
