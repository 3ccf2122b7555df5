"""`columns.encode`: rows back to the master's bytes."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.records import RECORD_SCHEMA
from sources.rocketmq.columns import codec, restore
from sources.rocketmq.columns.restore import encode_rows
from sources.rocketmq.format.commitlog import Blank
from tests import truth
from tests.sources.rocketmq.records import Log, log_of, logs, message


def test_the_brokers_files_come_back_to_the_byte(fixture_log: truth.Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-01. All forms in one batch: only the blanks that end the files are looked at one by one."""
    rows: list[int] = []

    def counted(records: pa.RecordBatch) -> list[bytes]:
        rows.append(records.num_rows)
        return encode_rows(records)

    monkeypatch.setattr(restore, "encode_rows", counted)
    decoded = codec.decode(fixture_log.log, Offset(0), Offset(fixture_log.max_offset))
    assert codec.encode(decoded.records) == fixture_log.log
    assert rows == [sum(row.get("blank", False) for row in fixture_log.rows)]


@given(logs(), st.integers(0, 40), st.integers(0, 40))
def test_any_log_comes_back_and_any_part_of_it(log: Log, start: int, count: int) -> None:
    records = codec.decode(log.stored, log.start, log.end).records
    assert codec.encode(records) == log.stored
    first, last = (log.boundaries[min(at, len(records))] - log.start for at in (start, start + count))
    assert codec.encode(records.slice(start, count)) == log.stored[first:last]


@pytest.mark.parametrize(
    "changes",
    [
        {"body": None},
        {"topic": None},
        {"born_host": "nowhere"},
        {"born_host": None},
        {"sys_flag": None},
        {"magic": 1},
        {"topic": "t" * 200},
        {"born_timestamp": None},
        {"size": 100},
        {"body": b"another length"},
    ],
)
def test_a_row_that_no_decoder_made(changes: dict[str, Any]) -> None:
    log = log_of([message()], 77)
    (row,) = codec.decode(log.stored, log.start, log.end).records.to_pylist()
    with pytest.raises(CorruptRecord) as caught:
        codec.encode(pa.RecordBatch.from_pylist([row | changes], RECORD_SCHEMA))
    assert caught.value.offset == 77
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"size": 13}, "another size"), ({"size": None}, "no record"), ({"offset": None}, "no record")],
)
def test_a_blank_row_of_the_wrong_size_or_without_a_place(change: dict[str, Any], problem: str) -> None:
    log = log_of([Blank(Offset(0), 12, b"abcd")])
    (row,) = codec.decode(log.stored, log.start, log.end).records.to_pylist()
    with pytest.raises(CorruptRecord, match=problem):
        codec.encode(pa.RecordBatch.from_pylist([row | change], RECORD_SCHEMA))


def test_times_below_a_millisecond_are_not_dropped_silently() -> None:
    log = log_of([message()])
    (row,) = codec.decode(log.stored, log.start, log.end).records.to_pylist()
    later = row["store_timestamp"].replace(microsecond=row["store_timestamp"].microsecond + 1)
    with pytest.raises(CorruptRecord, match="no record"):
        codec.encode(pa.RecordBatch.from_pylist([row | {"store_timestamp": later}], RECORD_SCHEMA))
