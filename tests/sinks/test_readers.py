"""The tables as other engines read them, and queries that skip files without losing rows."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sinks.tables import LOG
from tests.sinks.batches import opened, ranges
from tests.sinks.memory_master import MemoryMaster
from tests.sinks.plain_session import make_plain

APP_ID = "logtwin/rocketmq/broker-a@0"
MASTER = MemoryMaster((40, 60) * 60, cuts_at_records=True, chunk_records=50)  # 120 records, 6000 bytes
ROWS = MASTER.records()
FILES = 12
LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 files of 10 records each, in four batches."""
    folder = tmp_path_factory.mktemp("warehouse")
    with pytest.MonkeyPatch.context() as patch:
        replica = opened(make_plain(patch), folder, MASTER)
        for number in range(4):
            replica(ranges(number * 1500, number * 1500 + 1500, 500))
    return folder


def test_delta_rs_reads_rows_and_position(warehouse: Path) -> None:
    table = DeltaTable(LOG.path(str(warehouse)))
    assert table.transaction_version(APP_ID) == 6000
    found = sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: row["offset"])
    for row in found:
        row["properties"] = None if row["properties"] is None else dict(row["properties"])
    assert found == [{"log_id": "rocketmq/broker-a", "epoch": 0, **row} for row in ROWS]


@pytest.mark.spark
def test_a_query_skips_files(spark: SparkSession, warehouse: Path) -> None:
    frame = spark.read.format("delta").load(LOG.path(str(warehouse)))
    assert len(frame.inputFiles()) == FILES
    for condition, most in {
        "offset = 2540": 1,
        "offset >= 1000 AND offset < 2000": 2,
        "topic = 'orders'": 4,
        "store_timestamp < TIMESTAMP '2024-02-29 23:59:33Z'": 2,
        "unique_key = '0000000000000000000000000000004D'": 1,
        "log_id = 'rocketmq/broker-b'": 0,
        "queue_offset > 28": 1,
    }.items():
        assert len(frame.where(condition).inputFiles()) <= most, condition


@pytest.mark.spark
def test_skipping_never_loses_a_row(spark: SparkSession, warehouse: Path) -> None:
    """Each condition against a look at every row."""
    frame = spark.read.format("delta").load(LOG.path(str(warehouse)))
    row = ROWS[77]
    for condition, holds in conditions(row, row["born_timestamp"]):
        found = [hit["offset"] for hit in frame.where(condition).select("offset").collect()]
        assert sorted(found) == [one["offset"] for one in ROWS if holds(one)], condition


def conditions(row: dict[str, Any], moment: datetime) -> list[tuple[str, Callable[[dict[str, Any]], bool]]]:
    """Conditions in SQL and in Python, of which most rows of the log fail each."""
    literal = f"TIMESTAMP '{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z'"
    start, topic = row["offset"], row["topic"] or "orders"
    return [
        (f"offset >= {start} AND offset < {start + 300}", lambda one: 0 <= one["offset"] - start < 300),
        (f"topic <= '{topic}'", lambda one: one["topic"] is not None and one["topic"] <= topic),
        (f"store_timestamp >= {literal}", lambda one: (one["store_timestamp"] or LONG_AGO) >= moment),
        (f"born_timestamp = {literal}", lambda one: one["born_timestamp"] == moment),
        (f"born_timestamp > {literal}", lambda one: (one["born_timestamp"] or LONG_AGO) > moment),
        ("topic IS NULL", lambda one: one["topic"] is None),
    ]
