"""200 random histories of kill, restart, truncate, rewrite, backfill and repair: the proof holds at the end of each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.schedules import Schedule

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]

FIRST = int(os.environ.get("LOGTWIN_FIRST_SCHEDULE", "1000"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + 200))
def test_coverage_and_bytes_hold_at_the_end(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    Schedule(spark, tmp_path, seed).run()
