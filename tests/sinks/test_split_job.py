"""sinks.split_job: what is planned of a batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.split_job import planned
from sources.errors import ReplicaError
from sources.master import PlannedSplit
from sources.offsets import Offset, OffsetRange
from tests.sinks.batches import ranges

pytestmark = pytest.mark.spark

LOG = "rocketmq/broker-a"


def test_the_splits_of_a_batch(spark: SparkSession) -> None:
    batch = OffsetRange(Offset(100), Offset(500))
    found = planned(ranges(spark, 100, 500, split=150), LOG)
    assert sorted(found, key=lambda split: split.as_row()[3] or 0) == [
        PlannedSplit("rocketmq/broker-a", batch, OffsetRange(Offset(start), Offset(end)))
        for start, end in ((100, 250), (250, 400), (400, 500))
    ]


def test_a_plan_that_fails_names_its_logs(spark: SparkSession, tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"no parquet at all")
    batch = spark.read.schema("log_id string, a long, b long, c long, d long, error string").parquet(str(broken))
    with pytest.raises(ReplicaError, match="plans the batch") as caught:
        planned(batch, LOG)
    assert caught.value.log == "rocketmq/broker-a"
