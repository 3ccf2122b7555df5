"""Who asks for one topic and one hour opens the files that may hold them, and no others, by Spark's own count."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
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
    """What a job commits of one hour: its topics by turns."""
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
        )


@pytest.fixture
def replica(spark: SparkSession, tmp_path: Path) -> SparkSession:
    """A session that knows a replica whose table log has one file an hour."""
    ensure_tables(spark, str(tmp_path))
    table = KernelTable(spark, LOG.path(str(tmp_path)))
    table.commit(table.existing(), [file_of(table.path, hour) for hour in range(HOURS)])
    session = spark.newSession()
    for name, value in WITHOUT_CHANGES.items():
        session.conf.set(name, value)
    register(session, str(tmp_path), views=named_in("messages", "consume_queue"))
    return session


def file_of(folder: str, hour: int) -> DataFile:
    rows = pa.RecordBatch.from_pylist(list(records(hour)), LOG.schema.remove_metadata())
    with FileWriter(LOG, folder, new_name(rows.column("offset")[0].as_py())) as writer:
        writer.write(rows)
        return writer.finish()


def answer(replica: SparkSession, view: str, time: str) -> tuple[list[tuple[int, int]], int]:
    """What a view has of one topic in one hour, and how many files that took."""
    in_time = (col(time) >= lit(ASKED)) & (col(time) < lit(ASKED + HOUR))
    frame = replica.table(view).where((col("topic") == "refunds") & in_time).select("offset", "queue_id")
    return sorted((row.offset, row.queue_id) for row in frame.collect()), sum(read.files for read in reads(frame))


def test_an_hour_of_a_topic_opens_its_own_file(replica: SparkSession) -> None:
    """Of a consume queue what may hold inner batches, too: they say which topics are for batches where nobody told."""
    rows, files = answer(replica, "messages", "delivered_timestamp")
    assert (len(rows), files) == (EACH, 1)
    assert answer(replica, "consume_queue", "store_timestamp") == (rows, 2)
