"""200 random histories of kill, restart, truncate, rewrite, backfill and repair: the proof holds at the end of each.

And 200 of a group of eight logs: kills, masters that lose, change and hide, backfills and repairs.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline import group_in_process
from tests.pipeline.group_world import World
from tests.pipeline.schedules import Schedule

FIRST = int(os.environ.get("LOGTWIN_FIRST_SCHEDULE", "1000"))
pytestmark = [
    pytest.mark.soak, pytest.mark.timeout(7200), pytest.mark.parametrize("seed", range(FIRST, FIRST + 200))
]  # fmt: skip


def test_coverage_and_bytes_hold_at_the_end(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    Schedule(spark, tmp_path, seed).run()


def test_every_log_is_its_masters_at_the_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    group_in_process.use(monkeypatch)
    World(spark, tmp_path, seed, asks_all=True).run()
