"""Random histories of a group of eight logs: one; more in the night, and two hundred others in the soak."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline import group_in_process
from tests.pipeline.group_world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 20))])
def test_every_log_is_its_masters_at_the_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    group_in_process.use(monkeypatch)
    World(spark, tmp_path, seed, asks_all=seed % 10 == 0).run()
