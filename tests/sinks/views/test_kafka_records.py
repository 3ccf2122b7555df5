"""Records of a topic as text and JSON, and which files are opened for them."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sinks.delta.data_file import DataFile
from sinks.delta.files import FileWriter, new_name
from sinks.delta.kernel import KernelTable
from sinks.tables import KAFKA_LOG
from sinks.views.registration import register
from sinks.warehouse import ensure_table
from sources.offsets import Offset
from tests.scans import WITHOUT_CHANGES, reads
from tests.sinks.views.lake import Asked
from tests.sinks.views.made_logs import NOON
from tests.sinks.views.made_topics import record

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


MADE_ROWS = {
    KAFKA_LOG: [
        *(record(at, topic="values", value=value) for at, (value, _, _) in enumerate(VALUES)),
        record(
            0,
            topic="keys",
            key=b"k",
            headers=[("trace", b"first"), ("other", NOT_UTF8), ("", b""), ("trace", b"last"), ("none", None)],
        ),
        record(1, topic="keys", key=b"", headers=[("trace", b"first"), ("trace", None)]),
        record(2, topic="keys", key=NOT_UTF8, timestamp=None, leader_epoch=None),
        record(0, 7, "keys", epoch=2, timestamp_type="log_append_time", leader_epoch=4),
    ]
}


def test_values_are_text_and_json_where_they_can_be(asked: Asked) -> None:
    rows = asked.rows("kafka_records", "kafka/prod/values/0", "offset")
    assert [(row["value"], row["value_text"], row["value_json"]) for row in rows] == VALUES
    assert [row["is_tombstone"] for row in rows] == [value is None for value, _, _ in VALUES]


def test_keys_and_headers_and_what_is_as_it_was_stored(asked: Asked) -> None:
    rows = [row for number in (0, 7) for row in asked.rows("kafka_records", f"kafka/prod/keys/{number}", "offset")]
    assert [(row["key_text"], dict(row["header_texts"])) for row in rows] == [
        ("k", {"trace": "last", "other": None, "": "", "none": None}),
        ("", {"trace": None}),
        (None, {}),
        (None, {}),
    ]
    stored = MADE_ROWS[KAFKA_LOG][-len(rows) :]
    names = set(KAFKA_LOG.schema.names) - {"log_id"}
    assert [{name: row[name] for name in names} for row in rows] == [
        {name: row.get(name) for name in names} for row in stored
    ]


@pytest.mark.nightly
def test_a_query_opens_only_the_files_that_may_hold_what_it_asks_for(spark: SparkSession, tmp_path: Path) -> None:
    """One file for each topic, partition and hour, and in each hour ten offsets."""
    table = KernelTable(spark, KAFKA_LOG.path(str(tmp_path)))
    ensure_table(table, KAFKA_LOG)
    table.commit(table.existing(), list(files(table.path)))
    session = spark.newSession()
    for name, value in WITHOUT_CHANGES.items():
        session.conf.set(name, value)
    register(session, str(tmp_path), views=["kafka_records"])
    for asked in ASKED:
        assert opened(session, asked) == (40, 4)
    assert opened(session, " AND ".join(ASKED)) == (10, 1)


ASKED = ("topic = 'payments'", "partition = 1", "offset >= 10", "timestamp < TIMESTAMP'2024-02-29 13:00:00Z'")
"""Half of the files each, all of them one: the hours go back as the offsets go on."""


def files(folder: str) -> Iterator[DataFile]:
    for topic, partition, hour in product(("orders", "payments"), (0, 1), (0, 1)):
        rows = [
            record(hour * 10 + number, partition, topic, timestamp=NOON + (1 - hour) * HOUR) for number in range(10)
        ]
        with FileWriter(KAFKA_LOG, folder, new_name(Offset(hour * 10))) as file:
            file.write(pa.RecordBatch.from_pylist(rows, KAFKA_LOG.schema.remove_metadata()))
            yield file.finish()


def opened(session: SparkSession, asked: str) -> tuple[int, int]:
    """How many rows the view has, and how many files were opened for them."""
    frame = session.table("kafka_records").where(asked).select("offset", "value_text", "value_json")
    return len(frame.collect()), sum(read.files for read in reads(frame))
