"""Who asks for one topic and one hour opens the files that may hold them, and no others, by Spark's own count."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit

from sinks.delta.data_file import DataFile
from sinks.delta.files import FileWriter, new_name
from sinks.delta.kernel import KernelTable
from sinks.tables import LOG
from sinks.views.definition import named_in
from sinks.views.registration import register
from sinks.warehouse import ensure_tables
from tests.scans import WITHOUT_CHANGES, reads
from tests.sinks.views.made_logs import NOON, message

pytestmark = pytest.mark.spark

HOURS = 24
TOPICS = ("orders", "payments", "refunds", "telemetry")
EACH = 20  # messages of a topic in an hour
HOUR = timedelta(hours=1)
ASKED = NOON + 3 * HOUR
BATCHES = NOON + 9 * HOUR  # the only hour with an inner batch


def records(hour: int) -> Iterator[dict[str, Any]]:
    """What a job commits of one hour: its topics by turns. Bodies that do not compress make files of some size."""
    seeded = random.Random(hour)
    for number in range(EACH * len(TOPICS)):
        offset = (hour * EACH * len(TOPICS) + number) * 1000
        stored = NOON + hour * HOUR + number * HOUR / (EACH * len(TOPICS))
        is_batch = stored == BATCHES
        yield message(
            offset,
            TOPICS[number % len(TOPICS)],
            size=1000,
            store_timestamp=stored,
            queue_offset=offset,
            sys_flag=128 if is_batch else 0,
            body=seeded.randbytes(900),
        )


@dataclass(frozen=True)
class Replica:
    """One file an hour in table log, and a session that knows its tables and views."""

    session: SparkSession
    log: str  # the table's folder

    def messages(self, topic: str, start: datetime, end: datetime) -> Asked:
        return self._ask("messages", "delivered_timestamp", topic, start, end)

    def consume_queue(self, topic: str, start: datetime, end: datetime) -> Asked:
        return self._ask("consume_queue", "store_timestamp", topic, start, end)

    def _ask(self, view: str, time: str, topic: str, start: datetime, end: datetime) -> Asked:
        in_time = (col(time) >= lit(start)) & (col(time) < lit(end))
        frame = self.session.table(view).where((col("topic") == topic) & in_time).select("offset", "queue_id")
        rows = sorted((row.offset, row.queue_id) for row in frame.collect())
        return Asked(rows, sum(read.files for read in reads(frame)))

    def optimize(self, file_bytes: int) -> None:
        """With as many ranges of time as there are topics: else the curve follows time, and parts no topics."""
        self.session.conf.set("spark.databricks.delta.optimize.maxFileSize", file_bytes)
        self.session.conf.set("spark.databricks.io.skipping.mdc.rangeId.max", len(TOPICS))
        self.session.sql(f"OPTIMIZE delta.`{self.log}`")

    def files(self) -> list[dict[str, Any]]:
        """What the Delta log says of each, read by delta-rs."""
        found: list[dict[str, Any]] = pa.table(DeltaTable(self.log).get_add_actions(flatten=True)).to_pylist()
        return found


@dataclass(frozen=True)
class Asked:
    """An answer, and how many files it took."""

    rows: list[tuple[int, int]]
    files: int


@pytest.fixture
def replica(spark: SparkSession, tmp_path: Path) -> Replica:
    ensure_tables(spark, str(tmp_path))
    table = KernelTable(spark, LOG.path(str(tmp_path)))
    snapshot = table.snapshot()
    assert snapshot is not None
    table.commit(snapshot, [file_of(table.path, hour) for hour in range(HOURS)])
    session = spark.newSession()
    for name, value in WITHOUT_CHANGES.items():
        session.conf.set(name, value)
    register(session, str(tmp_path), views=named_in("messages", "consume_queue"))
    return Replica(session, table.path)


def file_of(folder: str, hour: int) -> DataFile:
    rows = pa.RecordBatch.from_pylist(list(records(hour)), LOG.schema.remove_metadata())
    with FileWriter(LOG, folder, new_name(rows.column("offset")[0].as_py())) as writer:
        writer.write(rows)
        return writer.finish()


def may_hold(files: Iterable[dict[str, Any]], topic: str, start: datetime, end: datetime) -> int:
    """How many files may, by their least and greatest values."""
    return sum(
        file["min.topic"] <= topic <= file["max.topic"]
        and file["min.store_timestamp"] < end
        and file["max.store_timestamp"] >= start
        for file in files
    )


ONE_HOUR, THE_DAY = ("refunds", ASKED, ASKED + HOUR), ("refunds", NOON, NOON + HOURS * HOUR)


def test_an_hour_of_a_topic_opens_its_own_file(replica: Replica) -> None:
    """Of a consume queue what may hold inner batches, too: they say which topics are for batches where nobody told."""
    hour = replica.messages(*ONE_HOUR)
    assert (len(hour.rows), hour.files) == (EACH, 1)
    assert replica.consume_queue(*ONE_HOUR) == Asked(hour.rows, 2)


@pytest.mark.nightly
def test_after_optimize_what_may_hold_it_is_opened(replica: Replica) -> None:
    hour, day = replica.messages(*ONE_HOUR), replica.messages(*THE_DAY)
    assert (len(day.rows), day.files) == (EACH * HOURS, HOURS)  # each file holds each topic
    replica.optimize(file_bytes=100_000)
    files = replica.files()
    assert len(files) > 10
    assert replica.messages(*ONE_HOUR) == Asked(hour.rows, may_hold(files, *ONE_HOUR))
    assert replica.messages(*THE_DAY) == Asked(day.rows, may_hold(files, *THE_DAY))
    assert may_hold(files, *ONE_HOUR) < may_hold(files, *THE_DAY) < len(files)
