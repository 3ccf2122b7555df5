"""Random histories of one log and its replica, by a job that has Spark's streaming and tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.pipeline.group_world import Killed as Killed
from tests.pipeline.group_world import World
from tests.pipeline.group_world import dying_after as dying_after


@dataclass
class Schedule(World):
    """What a run is to leave is tried more often than in a group: it runs and is killed between everything else."""

    asks_all: bool = True
    files: int = 1
    linked: int = 0
    leaders: int = 0

    def _history(self) -> Iterator[Callable[[], None]]:
        often = [self._happen, self._replicate, self._replicate_killed]
        for _ in range(self._moments.randrange(3, 9)):
            yield self._moments.choice([*often, *often, *often, self._backfill, self._repair])
