"""A message that makes its reader fail: it alone is left out, and named."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pyarrow as pa
import pytest

from sinks.typed import hidden
from sinks.typed.definition import Reading
from sinks.typed.formats import json_fields
from sinks.typed.step import parsing
from sinks.typed.step.guard import in_sound_parts
from sinks.typed.step.parsing import FieldSurvey
from sinks.typed.step.report import reported
from sources.errors import RegistryUnreachable
from tests.around import at_each
from tests.sinks.typed.test_parsing import Task, definition, messages

JSON: dict[str, Any] = {"reading": Reading(), "schema": None}
NUMBERS = pa.record_batch({"n": pa.array(range(40))})


@pytest.mark.parametrize("bad", [(), (0,), (39,), (7, 8, 30), tuple(range(40))])
def test_failing_messages_are_parts_of_their_own_in_order(bad: tuple[int, ...]) -> None:
    def work(batch: pa.RecordBatch) -> list[int]:
        found = batch["n"].to_pylist()
        if any(one in bad for one in found):
            raise IndexError("no such thing")
        return list(found)

    parts = list(in_sound_parts(work, NUMBERS))
    assert [number for part, _ in parts for number in part["n"].to_pylist()] == list(range(40))
    assert [part["n"].to_pylist() for part, made in parts if isinstance(made, IndexError)] == [[one] for one in bad]
    assert all(made == part["n"].to_pylist() for part, made in parts if not isinstance(made, IndexError))


AWAY = RegistryUnreachable("away")


@pytest.mark.parametrize("error", [MemoryError(), OSError("away"), AWAY, ImportError("avro"), KeyError("a defect")])
def test_what_is_no_messages_fault_is_raised(error: Exception) -> None:
    """The last fails without any message, too."""

    with pytest.raises(type(error)):
        list(in_sound_parts(Mock(side_effect=error), NUMBERS))


@pytest.fixture
def fails_at_b(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Mock(side_effect=RecursionError("maximum recursion depth exceeded" + "!" * 10_000))
    at_each(monkeypatch, json_fields, "fields_of", failing, when=lambda body: body is not None and b"b" in body)
    monkeypatch.setattr(parsing, "reader", lambda _: json_fields.fields_of)


@pytest.mark.usefixtures("fails_at_b")
def test_a_body_that_breaks_its_reader_is_a_dead_letter(tmp_path: Path) -> None:
    task = Task(tmp_path, definition(**JSON), b'{"a":1}', b'{"b":1}', b'{"c":"x"}', b"broken")
    assert [(row["offset"], row["_rest"]) for row in task.rows] == [(0, '{"a":1}'), (2, '{"c":"x"}')]
    assert [(row["offset"], row["column"], row["reason"], row["body"]) for row in task.unfit] == [
        (1, None, "reader_failed", b'{"b":1}'),
        (3, None, "reader_failed", b"broken"),
    ]
    assert all(row["found"].startswith("RecursionError: maximum") and len(row["found"]) < 300 for row in task.unfit)
    assert (task.report.messages, task.report.rows, set(task.report.seen)) == (4, 2, {"a", "c"})
    assert task.report.first_unfit is not None
    assert task.report.first_unfit[0].offset == 1


@pytest.mark.usefixtures("fails_at_b")
def test_a_field_survey_passes_a_body_that_breaks_its_reader() -> None:
    batch = messages(b'{"a":1}', b'{"b":1}', b'{"c":1}')
    (report,) = reported(row for rows in FieldSurvey(Reading())([batch]) for row in rows.to_pylist())
    assert (report.messages, report.rows, set(report.seen)) == (3, 2, {"a", "c"})


def test_a_mask_that_fails_at_a_value_names_its_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks, deletes and keys are read by other parsers than columns."""
    failing = Mock(side_effect=msgspec.DecodeError("no text"))
    at_each(monkeypatch, hidden, "concealed", failing, when=lambda _, raw: bytes(raw) == b'"bad"')
    task = Task(tmp_path, definition(**JSON, masks={"a": "hash"}), b'{"a":"bad"}', b'{"a":"good"}')
    assert [row["offset"] for row in task.rows] == [1]
    assert [(row["offset"], row["reason"], row["body"]) for row in task.unfit] == [(0, "reader_failed", None)]
