"""Tells the job what the planner sees (`sources.group.standing`), and looks for it while nobody plans.

The planner looks at the masters when it plans. While it does not, because a batch takes long or the interval between
batches is long, a thread of its process looks instead, and only for the job: nothing is planned from these looks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

from sources.group import standing
from sources.group.asking import Asker
from sources.group.lookout import Lookout
from sources.group.standing import Seen, Sighting, path_beside, write_seen

TICK_S: Final = 0.5
TELL_EVERY_S: Final = 1.0
FORGET_AFTER_S: Final = 5.0
"""After this time without an answer nothing is told of a log: the job must not take its silence for standing still."""

logger = logging.getLogger(__name__)


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
