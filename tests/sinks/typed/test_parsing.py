"""What a task makes of bodies with a schema: rows, dead letters, and what it saw that has no column."""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config.typed_tables import TypedTableConfig
from sinks.typed.definition import Definition, Reading
from sinks.typed.formats.json_fields import UNKNOWN
from sinks.typed.readers import kinds
from sinks.typed.source_tables import SourceTable
from sinks.typed.step.computed import in_years
from sinks.typed.step.parsing import MESSAGES, FieldSurvey, OfStep, Parsing, Unread
from sinks.typed.step.report import Report, reported, reports
from sources.errors import ReplicaError
from tests.sinks.typed.formats.columns import encoded
from tests.sinks.typed.formats.test_canal import event
from tests.sinks.typed.formats.test_protobuf import FILE, Order, in_base64, of_set

STORED = datetime(2026, 11, 25, tzinfo=UTC)
READING = Reading(format="protobuf", schema_text=in_base64(of_set(FILE)), message="shop.Order")
UNKNOWN_FIELD = b"\xc0\x3e\x01"
BODIES = [
    Order(string="a", int64=1 << 60).SerializeToString() + UNKNOWN_FIELD,
    b"\x08",
    Order(string="b", double=float("nan")).SerializeToString(),
]


def messages(*bodies: bytes | dict[str, Any]) -> pa.RecordBatch:
    """Messages with these bodies, or with these columns."""
    place = {"log_id": "rocketmq/a", "stored_at": STORED}
    rows = [
        {**place, "source": "orders", "offset": number, **(body if isinstance(body, dict) else {"body": body})}
        for number, body in enumerate(bodies)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=MESSAGES)


class Task:
    """One over these bodies; what it wrote, and its report."""

    def __init__(self, folder: Path, definition: Definition, *bodies: bytes | dict[str, Any]) -> None:
        (folder / "rows").mkdir()
        (folder / "unfit").mkdir()
        step = OfStep(definition.declared(), epochs={"rocketmq/a": 0})
        parsing = Parsing(definition, str(folder / "rows"), str(folder / "unfit"), step)
        self.report: Report = parsing.report([messages(*bodies)])
        self.rows = self._read(folder / "rows", [one.name for one in self.report.files])
        self.unfit = self._read(folder / "unfit", [one.name for one in self.report.unfit])

    @staticmethod
    def _read(folder: Path, names: list[str]) -> list[dict[str, Any]]:
        return [row for name in names for row in pq.ParquetFile(folder / name).read().to_pylist()]


def definition(**how: Any) -> Definition:
    return Definition(
        **{"name": "orders", "topics": ("orders",), "reading": READING, "schema": dict(kinds(READING)), **how}
    )


def test_rows_and_dead_letters(tmp_path: Path) -> None:
    made = Task(tmp_path, definition(), *BODIES)
    assert made.report.sources == {"orders"}
    assert [(row["offset"], row["string"], row["int64"], row["double"]) for row in made.rows] == [
        (0, "a", 1 << 60, 0.0),
        (2, "b", 0, None),
    ]
    kept = base64.b64encode(UNKNOWN_FIELD).decode()
    assert [row["_rest"] for row in made.rows] == [json.dumps({UNKNOWN: kept}, separators=(",", ":")), None]
    assert [(row["offset"], row["column"], row["reason"], row["body"]) for row in made.unfit] == [
        (1, None, "not_protobuf", BODIES[1]),
        (2, "double", "not_double", BODIES[2]),
    ]


def test_a_look_at_change_events_finds_the_kinds_that_they_tell() -> None:
    reading = Reading(format="canal", database="shop", table="orders", row_key=("id",))
    types = {"id": "int(11)", "amount": "decimal(12,2)", "state": "enum('a')"}
    rows: list[dict[str, Any]] = [
        {"id": "1", "amount": "1.10", "state": "1"},
        {"id": "2", "amount": None, "state": None},
    ]
    bodies = [encoded(one) for one in (event(*rows, mysqlType=types), event(rows[0], table="other"))]
    (report,) = reported(row for one in FieldSurvey(reading)([messages(*bodies)]) for row in one.to_pylist())
    assert {name: one.kind for name, one in report.seen.items()} == {
        "id": "bigint", "amount": "decimal(12,2)", "state": "string"
    }  # fmt: skip
    assert report.messages == 2


def test_an_unreadable_body_says_why_and_is_kept_as_stored(tmp_path: Path) -> None:
    text = definition(reading=Reading(format="text"), schema=None)
    given: list[dict[str, Any]] = [
        {"body": b"sound", "sys_flag": 1},
        {"sys_flag": 0x301, "stored_body": b"\xff" * 1234},
        {"sys_flag": 129, "batch_index": 7},
        {},  # a record of Kafka without a value
    ]
    made = Task(tmp_path, text, *given)
    assert [row["text"] for row in made.rows] == ["sound"]
    assert [(row["offset"], row["reason"], row["found"], row["body"]) for row in made.unfit] == [
        (1, "not_decompressed", "sys_flag 769, 1,234 bytes that cannot be decompressed, or are too many then",
         b"\xff" * 1234),
        (2, "no_body", "sys_flag 129, an inner batch that has no message 7", None),
        (3, "no_body", "null", None),
    ]  # fmt: skip


def test_a_table_with_masks_keeps_no_stored_body(tmp_path: Path) -> None:
    hiding = definition(reading=Reading(format="text"), schema=None, masks={"text": "hash"})
    made = Task(tmp_path, hiding, {"sys_flag": 1, "stored_body": b"junk"})
    assert [(row["reason"], row["body"]) for row in made.unfit] == [("not_decompressed", None)]


def test_record_times_outside_the_years_1_to_9999_are_null(tmp_path: Path) -> None:
    """A producer of Kafka that gives microseconds, or nanoseconds, for milliseconds."""
    text = definition(reading=Reading(format="text"), schema=None)
    last_us = 253_402_300_799_999_999
    times = [last_us, last_us + 1, -62_135_596_800_000_001, None]
    made = Task(tmp_path, text, *({"body": b"x", "stored_at": one} for one in times))
    assert [row["stored_at"] for row in made.rows] == [datetime.max.replace(tzinfo=UTC), None, None, None]


INSTANTS, DAYS = pa.timestamp("us", "UTC"), pa.date32()


@pytest.mark.parametrize(
    ("kind", "last", "beyond"),
    [
        (INSTANTS, 253_402_300_799_999_999, 253_402_300_800_000_000),
        (INSTANTS, -62_135_596_800_000_000, -62_135_596_800_000_001),
        (DAYS, 2_932_896, 2_932_897),
        (DAYS, -719_162, -719_163),
        (DAYS, 0, (1 << 31) - 1),
    ],
)
def test_a_computed_time_outside_those_years_is_named(kind: pa.DataType, last: int, beyond: int) -> None:
    times = pa.array([None, last, beyond], pa.int32() if kind == DAYS else pa.int64()).cast(kind)
    place = {"log_id": ["rocketmq/a"] * 3, "offset": [7, 8, 9]}
    rows = pa.RecordBatch.from_pydict({**place, "sent": times})
    assert in_years(rows.slice(0, 2)).num_rows == 2
    with pytest.raises(ReplicaError, match="sent") as caught:
        in_years(rows)
    assert (caught.value.offset, str(beyond) in str(caught.value)) == (9, True)


def test_nothing_that_is_hidden_is_in_the_rest(tmp_path: Path) -> None:
    masked = definition(masks={"string": "redact"}, dropped=("int64", UNKNOWN))
    made = Task(tmp_path, masked, *BODIES)
    assert [(row["string"], row["_rest"]) for row in made.rows] == [("***", None), ("***", None)]
    assert "int64" not in made.rows[0]
    assert {row["body"] for row in made.unfit} == {None}


LOG = "rocketmq/a"


def batch(*places: tuple[int, int | None]) -> pa.RecordBatch:
    """A message at each offset and index, which says where it is."""
    rows = [
        {"log_id": LOG, "offset": offset, "batch_index": index, "stored_at": 0, "body": b'{"at":"%d"}' % offset}
        for offset, index in places
    ]
    return pa.RecordBatch.from_pylist(rows, schema=MESSAGES)


BATCHES = [batch((3, None), (7, 0), (7, 1)), batch((7, 2), (7, 3), (9, None))]


def told(folder: Path, of_step: OfStep) -> Report:
    parsing = Parsing(Definition(name="orders"), str(folder), str(folder))
    rows = [row for one in parsing(BATCHES, of_step) for row in one.to_pylist()]
    return reports(rows)


def places(folder: Path, names: list[str]) -> list[tuple[int, int | None]]:
    rows = [row for name in names for row in pq.ParquetFile(folder / name).read().to_pylist()]
    return [(row["offset"], row["batch_index"]) for row in rows]


def test_a_record_that_is_not_read_is_a_dead_letter_whole_or_in_part(tmp_path: Path) -> None:
    for number, (read, left_out) in enumerate({(): (0, 1, 2, 3), ((0, 4),): (), ((1, 2), (3, 4)): (0, 2)}.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        report = told(folder, OfStep(epochs={LOG: 0}, unread=Unread(LOG, 7, read, "3 times: crashed")))
        unfit = places(folder, [one.name for one in report.unfit])
        rows = places(folder, [one.name for one in report.files])
        assert unfit == [(7, index) for index in left_out]
        assert rows == [(3, None), *((7, index) for index in range(4) if index not in left_out), (9, None)]
        assert report.messages == 6
        if left_out:
            assert report.first_unfit is not None
            place, column, found = report.first_unfit
            assert (place.offset, place.index, column) == (7, left_out[0], "")
            assert found == "worker_died: 3 times: crashed"


def test_another_log_has_the_same_offsets(tmp_path: Path) -> None:
    report = told(tmp_path, OfStep(epochs={LOG: 0}, unread=Unread("rocketmq/b", 7, (), "")))
    assert (report.rows, report.unfit) == (6, ())


def test_a_look_says_where_the_messages_are_and_writes_nothing(tmp_path: Path) -> None:
    report = told(tmp_path, OfStep(only_looks=True))
    assert (report.messages, report.rows, report.held) == (6, 0, ((LOG, 3, 9, 3),))
    assert list(tmp_path.iterdir()) == []


def test_the_tables_of_a_topic_with_the_keys_of_its_records(tmp_path: Path) -> None:
    """Of Debezium, whose tombstones say nothing."""
    of = TypedTableConfig.model_validate(
        {"name": "{database}_{table}", "from": ["kafka/prod/.*"], "format": "debezium", "mode": "upsert"}
    )
    source = {"db": "shop", "schema": "public", "table": "orders", "connector": "postgresql", "lsn": 1}
    body = json.dumps({"op": "c", "source": source, "before": None, "after": {"id": 1}}).encode()
    topic = {"source": "kafka/prod/pg.public.orders"}
    made = Task(tmp_path, of.definition(), {**topic, "body": body, "record_key": b'{"id": 1}'}, topic, {"body": body})
    assert [(row["database"], row["table"], row["topic"], row["primary_key"]) for row in made.rows] == [
        ("shop", "public.orders", "kafka/prod/pg.public.orders", '["id"]'),
        ("shop", "public.orders", "orders", None),
    ]
    assert made.unfit == []
    found = SourceTable("shop", "public.orders", "public", (topic["source"],), ("id",))
    one = of.of(found).definition()
    assert (one.name, one.key, one.kafka_topics) == ("shop_orders", ("id",), (topic["source"],))
    assert (one.reading.database, one.reading.table, one.reading.mentioned) == ("shop", "public.orders", "orders")
