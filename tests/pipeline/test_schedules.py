"""Three random histories; 200 others are in the soak."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.schedules import Schedule

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_coverage_and_bytes_hold_at_the_end(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    Schedule(spark, tmp_path, seed).run()
