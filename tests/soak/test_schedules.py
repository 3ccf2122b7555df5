"""200 random histories of kill, restart, truncate, rewrite, backfill and repair: the proof holds at the end of each.

And 200 of a group of eight logs: kills, masters that lose, change and hide, backfills and repairs.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline import group_in_process
from tests.pipeline.group_world import World

FIRST = int(os.environ.get("LOGTWIN_FIRST_SCHEDULE", "1000"))
pytestmark = [
    pytest.mark.soak, pytest.mark.timeout(7200), pytest.mark.parametrize("seed", range(FIRST, FIRST + 200))
]  # fmt: skip


@dataclass
class Schedule(World):
    """One log, whose runs are killed more often than a group's: between everything else that happens."""

    asks_all: bool = True
    files: int = 1
    linked: int = 0
    leaders: int = 0

    def _history(self) -> Iterator[Callable[[], None]]:
        often = [self._happen, self._replicate, self._replicate_killed]
        for _ in range(self._moments.randrange(3, 9)):
            yield self._moments.choice([*often, *often, *often, self._backfill, self._repair])


def test_coverage_and_bytes_hold_at_the_end(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    Schedule(spark, tmp_path, seed).run()


def test_every_log_is_its_masters_at_the_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    group_in_process.use(monkeypatch)
    World(spark, tmp_path, seed, asks_all=True).run()
