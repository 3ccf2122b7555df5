"""What a task makes of bodies with a schema: rows, dead letters, and what it saw that has no column."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinks.typed.definition import Definition
from sinks.typed.formats.reading import UNKNOWN, Reading
from sinks.typed.readers import kinds
from sinks.typed.step.parsing import MESSAGES, Parsing, Report
from tests.sinks.typed.formats.test_protobuf import FILE, Order, in_base64, of_set
from tests.sinks.typed.served_schemas import Served, frame

STORED = datetime(2026, 11, 25, tzinfo=UTC)
READING = Reading(format="protobuf", schema_text=in_base64(of_set(FILE)), message="shop.Order")
UNKNOWN_FIELD = b"\xc0\x3e\x01"
BODIES = [
    Order(string="a", int64=1 << 60).SerializeToString() + UNKNOWN_FIELD,
    b"\x08",
    Order(string="b", double=float("nan")).SerializeToString(),
]


def messages(*bodies: bytes) -> pa.RecordBatch:
    rows = [
        {"log_id": "rocketmq/a", "offset": number, "stored_at": STORED, "body": body}
        for number, body in enumerate(bodies)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=MESSAGES)


class Task:
    """One over these bodies; what it wrote, and its report."""

    def __init__(self, folder: Path, definition: Definition, *bodies: bytes) -> None:
        (folder / "rows").mkdir()
        (folder / "unfit").mkdir()
        parsing = Parsing(
            "orders", definition.declared(), str(folder / "rows"), str(folder / "unfit"),
            finds=definition.schema is None, dropped=definition.dropped, masks=definition.masks,
            reading=definition.reading, epochs={"rocketmq/a": 0}, most=definition.max_columns,
        )  # fmt: skip
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


def test_nothing_that_is_hidden_is_in_the_rest(tmp_path: Path) -> None:
    masked = definition(masks={"string": "redact"}, dropped=("int64", UNKNOWN))
    made = Task(tmp_path, masked, *BODIES)
    assert [(row["string"], row["_rest"]) for row in made.rows] == [("***", None), ("***", None)]
    assert "int64" not in made.rows[0]
    assert {row["body"] for row in made.unfit} == {None}


@pytest.fixture
def served() -> Any:
    made = Served()
    yield made
    made.close()


def test_columns_that_a_registry_brings(tmp_path: Path, served: Served) -> None:
    served.answers["/schemas/ids/7?format=serialized"] = 200, {"schema": in_base64(FILE), "schemaType": "PROTOBUF"}
    reading = Reading(format="protobuf", registry=served.url)
    bodies = [frame(7, b"\x02\x02" + body) for body in BODIES]
    made = Task(tmp_path, definition(reading=reading, schema=None), *bodies)
    seen = {name: one.kind for name, one in made.report.seen.items()}
    assert {name: seen[name] for name in ("int32", "int64", "uint64", "double", "state")} == {
        "int32": "bigint", "int64": "bigint", "uint64": "decimal(20,0)", "double": "double", "state": "string",
    }  # fmt: skip
    assert UNKNOWN not in seen  # no column can have that name
    assert "at" not in seen
    assert made.report.rows == len(made.rows) == 2
