"""Replicating by path takes memory for what is in flight, not for the log."""

from pathlib import Path

import pytest

from tests.large_log import write_large_log
from tests.pipeline.job_toml import SMALL, job_toml
from tests.resident import Peak, run_measured

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]

MB = 1_000_000
PYTHON_GROWTH_MIB = 75
JAVA_GROWTH_MIB = 150
"""What two runs of the same work may differ by: allocators keep pages, collectors run when they like."""


def replicate(folder: Path, size_bytes: int, max_bytes_per_trigger: int) -> Peak:
    log = folder / f"log-{size_bytes}"
    end = write_large_log(log, size_bytes)
    spark = SMALL | {"spark.driver.extraJavaOptions": "-Xms512m"}
    of_log = {"path": log, "max_bytes_per_trigger": max_bytes_per_trigger}
    job = job_toml(folder, of_log, warehouse=folder / f"lake-{size_bytes}", spark=spark)
    peak = run_measured(["replicate", "--config", str(job), "--available-now"])
    assert f"done at offset {end}" in peak.said
    return peak


def test_a_log_three_times_as_long_takes_no_more_memory(tmp_path: Path) -> None:
    short = replicate(tmp_path, 100 * MB, 50 * MB)
    long = replicate(tmp_path, 300 * MB, 50 * MB)
    # The largest process, not their sum: how many short-lived ones Spark has at one moment is chance.
    assert long.largest_python_mib < short.largest_python_mib + PYTHON_GROWTH_MIB
    assert long.java_mib < short.java_mib + JAVA_GROWTH_MIB
