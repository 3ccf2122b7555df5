"""A day of one-second commits: how a table opens and commits before ``logtwin maintain`` and after it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.pipeline.day_of_commits import comparison, figures, log_path, maintain, newest, replicate_a_day, versions
from tests.sinks.many_commits import COMMIT_RECORDS

pytestmark = [pytest.mark.soak, pytest.mark.spark]
COMMITS = int(os.environ.get("LOGTWIN_SOAK_COMMITS", 86_400))
RECENT = 2 * 3600 + 60


def test_a_day_of_commits(spark: SparkSession, tmp_path: Path) -> None:
    kept = replicate_a_day(spark, tmp_path, COMMITS, recent=RECENT)
    before = figures(spark, tmp_path)
    steps = maintain(spark, tmp_path, log_hours=2)
    after = figures(spark, tmp_path)
    for one in steps:
        print(f"{one.table:8} {one.step:10} {one.files_before:8,} -> {one.files_after:8,} in {one.seconds:.1f} s")  # noqa: T201
    print(comparison(before, after))  # noqa: T201 - figures for docs/soak.md
    assert before.data_files == COMMITS
    assert after.data_files < 20
    assert versions(tmp_path, ".json")[0] == kept
    assert after.log_entries < RECENT + 100  # a commit each
    assert newest(spark, tmp_path).version >= COMMITS
    assert DeltaTable(log_path(tmp_path)).to_pyarrow_table(columns=["offset"]).num_rows == COMMITS * COMMIT_RECORDS
