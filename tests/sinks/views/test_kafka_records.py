"""Records of a topic as text and JSON, and which files are opened for them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from pipeline.sql.formats import writer
from pipeline.sql.output import Format
from sinks.delta.data_file import DataFile
from sinks.delta.files import FileWriter, new_name
from sinks.delta.kernel import KernelTable
from sinks.tables import KAFKA_LOG
from sinks.views.registration import register
from sinks.warehouse import ensure_table
from sources.offsets import Offset
from tests.scans import WITHOUT_CHANGES, reads
from tests.sinks.views.made_topics import NOON, record, session_with

pytestmark = pytest.mark.spark

NOT_UTF8 = b"\xff\xfe"
VALUES: list[tuple[bytes | None, str | None, str | None]] = [
    (b'{"a": [1, null]}', '{"a": [1, null]}', '{"a":[1,null]}'),
    (b' "x" ', ' "x" ', '"x"'),
    (b"null", "null", "null"),  # the JSON value, which is there
    (b"42 apples", "42 apples", None),
    (b"1, 2", "1, 2", None),
    (b"{", "{", None),
    (b"", "", None),
    ("größe".encode(), "größe", None),
    (NOT_UTF8, None, None),
    (None, None, None),
]
"""A value, its text, its JSON."""
HOUR = timedelta(hours=1)


def texts_of(session: SparkSession) -> list[Any]:
    as_json = sql.to_json("value_json")
    frame = session.table("kafka_records").orderBy("offset")
    found = frame.select("key_text", "value_text", as_json, "header_texts", "is_tombstone", "value").collect()
    return [tuple(row) for row in found]


def test_values_are_text_and_json_where_they_can_be(spark: SparkSession, tmp_path: Path) -> None:
    session = session_with(spark, tmp_path, [record(at, value=value) for at, (value, _, _) in enumerate(VALUES)])
    found = [(value, text, as_json) for _, text, as_json, _, _, value in texts_of(session)]
    assert found == VALUES
    tombstones = [is_tombstone for *_, is_tombstone, _ in texts_of(session)]
    assert tombstones == [value is None for value, _, _ in VALUES]


def test_keys_and_headers_and_what_is_as_it_was_stored(spark: SparkSession, tmp_path: Path) -> None:
    headers = [("trace", b"first"), ("other", NOT_UTF8), ("", b""), ("trace", b"last"), ("none", None)]
    rows = [
        record(0, key=b"k", headers=headers),
        record(1, key=b"", headers=[("trace", b"first"), ("trace", None)]),
        record(2, key=NOT_UTF8, timestamp=None, leader_epoch=None),
        record(3, partition=7, epoch=2, timestamp_type="log_append_time", leader_epoch=4),
    ]
    session = session_with(spark, tmp_path, rows)
    found = [(key, header_texts) for key, _, _, header_texts, _, _ in texts_of(session)]
    assert found == [
        ("k", {"trace": "last", "other": None, "": "", "none": None}),
        ("", {"trace": None}),
        (None, {}),
        (None, {}),
    ]
    stored = session.table("kafka_records").select(*KAFKA_LOG.schema.names).orderBy("offset").collect()
    assert [row.asDict(recursive=True) for row in stored] == session_rows(session)
    assert [header.key for header in stored[0].headers] == ["trace", "other", "", "trace", "none"]
    assert [(row.log_id, row.epoch, row.leader_epoch) for row in stored[2:]] == [
        ("kafka/prod/orders/0", 0, None),
        ("kafka/prod/orders/7", 2, 4),
    ]


def session_rows(session: SparkSession) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in session.table("kafka_log").orderBy("offset").collect()]


@pytest.mark.parametrize("form", ["json", "csv", "parquet", "table"])
def test_logtwin_sql_writes_a_variant_as_json(spark: SparkSession, tmp_path: Path, form: Format) -> None:
    session = session_with(spark, tmp_path, [record(0, value=b'{"a": [1, "x"]}', key=b"k"), record(1, value=b"{")])
    frame = session.sql("SELECT key, value_json FROM kafka_records ORDER BY offset")
    sink = io.BytesIO()
    writer(form, width=None)(frame, sink)
    assert WRITTEN[form](sink.getvalue()) == EXPECTED[form]


WRITTEN: dict[str, Callable[[bytes], Any]] = {
    "json": lambda data: [json.loads(line) for line in data.splitlines()],
    "csv": lambda data: list(csv.reader(io.StringIO(data.decode()))),
    "parquet": lambda data: pq.read_table(io.BytesIO(data)).to_pylist(),
    "table": lambda data: [line.split() for line in data.decode().splitlines()[2:]],
}
EXPECTED = {
    "json": [{"key": "aw==", "value_json": {"a": [1, "x"]}}, {"key": None, "value_json": None}],
    "csv": [["key", "value_json"], ["aw==", '{"a":[1,"x"]}'], ["", ""]],
    "parquet": [{"key": b"k", "value_json": '{"a":[1,"x"]}'}, {"key": None, "value_json": None}],
    "table": [["aw==", '{"a":[1,"x"]}'], ["NULL", "NULL"]],
}


def test_a_query_opens_only_the_files_that_may_hold_what_it_asks_for(spark: SparkSession, tmp_path: Path) -> None:
    """One file for each topic, partition and hour, and in each hour ten offsets."""
    table = KernelTable(spark, KAFKA_LOG.path(str(tmp_path)))
    ensure_table(table, KAFKA_LOG)
    snapshot = table.snapshot()
    assert snapshot is not None
    table.commit(snapshot, list(files(table.path)))
    session = spark.newSession()
    for name, value in WITHOUT_CHANGES.items():
        session.conf.set(name, value)
    register(session, str(tmp_path), views=["kafka_records"])
    for asked in ASKED:
        assert opened(session, asked) == (40, 4)
    assert opened(session, " AND ".join(ASKED)) == (10, 1)


ASKED = (
    "topic = 'payments'",
    "partition = 1",
    "offset >= 10",
    "timestamp < TIMESTAMP'2024-02-29 13:00:00Z'",
)
"""Half of the files each, all of them one: the hours go back as the offsets go on."""


def files(folder: str) -> Iterator[DataFile]:
    for topic, partition, hour in product(("orders", "payments"), (0, 1), (0, 1)):
        rows = [
            record(
                hour * 10 + number,
                partition,
                topic=topic,
                log_id=f"kafka/prod/{topic}/{partition}",
                timestamp=NOON + (1 - hour) * HOUR,
            )
            for number in range(10)
        ]
        with FileWriter(KAFKA_LOG, folder, new_name(Offset(hour * 10))) as file:
            file.write(pa.RecordBatch.from_pylist(rows, KAFKA_LOG.schema.remove_metadata()))
            yield file.finish()


def opened(session: SparkSession, asked: str) -> tuple[int, int]:
    """How many rows the view has, and how many files were opened for them."""
    frame = session.table("kafka_records").where(asked).select("offset", "value_text", "value_json")
    return len(frame.collect()), sum(read.files for read in reads(frame))
