"""Ten minutes of one-second commits: maintained, the table is small, quick to open, and the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sinks.delta import files
from tests.pipeline.day_of_commits import comparison, figures, log_path, maintain, newest, replicate_a_day, versions
from tests.sinks.batches import offsets
from tests.sinks.long_log import RECORD_BYTES, file_of
from tests.sinks.many_commits import COMMIT_RECORDS

pytestmark = [pytest.mark.nightly, pytest.mark.spark]
COMMITS = 600
RECENT = 100


def test_six_hundred_commits(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = log_path(tmp_path)
    with monkeypatch.context() as quick:
        quick.setattr(files, "sync", lambda path: None)

        def write(offset: int) -> Path:
            first = offset // RECORD_BYTES
            return Path(path, file_of(path, first, first + COMMIT_RECORDS).name)

        kept = replicate_a_day(spark, tmp_path, COMMITS, RECENT, write)
    expected = [at * RECORD_BYTES for at in range(COMMITS * COMMIT_RECORDS)]
    assert offsets(tmp_path) == expected
    assert spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()[0]["numFiles"] == COMMITS
    before = figures(spark, tmp_path)
    assert before.data_files == COMMITS
    steps = {(one.table, one.step): one for one in maintain(spark, tmp_path, log_hours=0.02)}
    assert steps["log", "merge"].files_before == COMMITS
    assert steps["log", "merge"].files_after == 1
    assert offsets(tmp_path) == expected
    version = newest(spark, tmp_path).version
    assert versions(tmp_path, ".checkpoint.parquet")[-1] == version  # nobody has a commit to read after it
    assert versions(tmp_path, ".json") == list(range(kept, version + 1))
    assert set(versions(tmp_path, ".crc")) <= {version}
    after = figures(spark, tmp_path)
    assert after.data_files == 1
    assert after.log_entries < before.log_entries / 8
    assert spark.read.format("delta").load(path).count() == len(expected)
    assert (
        DeltaTable(path).transaction_version("logtwin/rocketmq/broker-a@0") == COMMITS * COMMIT_RECORDS * RECORD_BYTES
    )
    print(f"\n{comparison(before, after)}")  # noqa: T201
