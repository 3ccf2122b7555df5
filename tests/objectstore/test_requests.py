"""What a warehouse on S3 costs in requests, which are money and time: docs/scaling.md."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.objectstore.fault_proxy import FaultProxy
from tests.sinks.groups import Members, sound

pytestmark = pytest.mark.spark

RECORD_BYTES = 100
BEFORE, BATCHES = 3, 20  # a checkpoint of each table
AT_MOST_A_BATCH = 12


def test_a_batch_of_one_split_in_steady_state(spark: SparkSession, lake: str, s3_link: FaultProxy) -> None:
    members = Members(spark, lake, sound("a", sizes=(RECORD_BYTES,) * (BEFORE + BATCHES)))
    for number in range(1, BEFORE + 1):
        members.bring(number * RECORD_BYTES)
    with s3_link.counted() as seen:
        for number in range(BEFORE + 1, BEFORE + BATCHES + 1):
            members.bring(number * RECORD_BYTES)
    assert len(seen) / BATCHES <= AT_MOST_A_BATCH, seen.table()
