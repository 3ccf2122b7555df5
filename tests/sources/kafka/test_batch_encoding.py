"""Rows written as batches: what other readers, and ours, make of them."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from sources.errors import CorruptRecord
from sources.kafka.format.batch_encoding import BATCH_BYTES, MAX_DELTA, EncodedBatch, empty_batch, encode
from sources.kafka.format.columns import CREATE_TIME, LOG_APPEND_TIME, UNLOCATED_SCHEMA, canonical
from sources.kafka.rebuilt_partitions import OWN, RebuiltPartition, folder_name
from sources.offsets import END, LogId, Offset, OffsetRange
from sources.rebuilt_folder import RebuiltFolder
from tests.sources.kafka.batches import (
    NOW_MS,
    TEXTS,
    Row,
    Sent,
    Written,
    decoded,
    headers,
    read_by_kafka_python,
    rows_of,
)
from tests.sources.kafka.test_batches import BY_HAND
from tests.spans import span

FAR_MS = 60_000_000_000_000
"""From 1970: years that Python knows. There are others."""
TIME_AT = 12
"""At which canonical byte of a record its time stands."""


def row(offset: int, **values: Any) -> Row:
    """As `rows_of` gives it."""
    defaults = {"leader_epoch": 0, "timestamp": NOW_MS, "timestamp_type": CREATE_TIME, "key": None, "value": b"v"}
    return {"offset": offset, **defaults, "headers": [], **values}


def records(rows: Sequence[Row]) -> pa.RecordBatch:
    """The inverse of `rows_of`."""
    values = [
        one
        | {
            "timestamp": None if one["timestamp"] is None else one["timestamp"] * 1000,
            "headers": [{"key": key, "value": value} for key, value in one["headers"]],
        }
        for one in rows
    ]
    return pa.RecordBatch.from_pylist(values, schema=UNLOCATED_SCHEMA)


def log(batches: Sequence[EncodedBatch]) -> bytes:
    return b"".join(one.whole for one in batches)


def written(*rows: Row) -> list[EncodedBatch]:
    """Their batches, which give them again."""
    batches = list(encode(records(rows)))
    assert rows_of(decoded(log(batches)).records) == list(rows)
    assert list(read_by_kafka_python(log(batches))) == list(rows)
    return batches


@st.composite
def many_rows(draw: st.DrawFn) -> list[Row]:
    times = st.none() | st.integers(0, FAR_MS) | st.integers(NOW_MS, NOW_MS + 2) | st.integers(-FAR_MS, -2)
    at, rows = draw(st.integers(0, 2**40)), []
    for _ in range(draw(st.integers(0, 12))):
        at += draw(st.sampled_from((1, 1, 1, 2, 300, 2**31, 2**33)))
        rows.append(
            row(
                at,
                leader_epoch=draw(st.sampled_from((None, 0, 7, 7, 7))),
                timestamp=draw(times),
                timestamp_type=draw(st.sampled_from((CREATE_TIME, CREATE_TIME, LOG_APPEND_TIME))),
                key=draw(TEXTS),
                value=draw(TEXTS),
                headers=list(draw(headers())),
            )
        )
    return rows


@given(many_rows())
def test_rows_come_back_as_they_were(rows: list[Row]) -> None:
    batches = written(*rows)
    assert canonical(decoded(log(batches)).records) == canonical(records(rows))
    ends = [Offset(0), *(one.covered.end for one in batches)]
    assert all(end <= one.covered.start for end, one in zip(ends, batches, strict=False))
    assert [one.covered.end for one in batches][-1:] == [one["offset"] + 1 for one in rows[-1:]]


def test_the_bytes_of_a_batch_written_by_hand() -> None:
    """But for the offset behind its record, which is in no row."""
    (made,) = encode(decoded(BY_HAND).records)
    (theirs,), (ours,) = MemoryRecords(BY_HAND), MemoryRecords(made.whole)
    assert (theirs.last_offset_delta, ours.last_offset_delta) == (2, 0)
    assert (ours.base_offset, ours.leader_epoch, ours.producer_id) == (200, 7, -1)
    # the one record counts from its own time: its delta is 0 instead of 3
    assert made.whole[61:] == BY_HAND[61:63] + b"\0" + BY_HAND[64:]
    assert made.whole[:8] == BY_HAND[:8]


def test_rows_that_can_share_a_batch_do() -> None:
    (batch,) = written(*(row(offset, timestamp=NOW_MS + offset % 10, key=b"k") for offset in (5, 6, 9, 400)))
    assert (batch.covered, batch.epoch) == (span(5, 401), 0)
    (found,) = MemoryRecords(batch.whole)
    assert (found.first_timestamp, found.max_timestamp) == (NOW_MS + 5, NOW_MS + 9)


@pytest.mark.parametrize("changes", [{"leader_epoch": 1}, {"leader_epoch": None}, {"timestamp_type": LOG_APPEND_TIME}])
def test_what_is_said_once_a_batch_begins_another(changes: dict[str, Any]) -> None:
    batches = written(row(1), row(2), row(3, **changes), row(4, **changes), row(5))
    assert [(one.covered.start, one.covered.end) for one in batches] == [(1, 3), (3, 5), (5, 6)]


def test_the_brokers_own_time_is_one_a_batch() -> None:
    times = (NOW_MS, NOW_MS, NOW_MS + 1, NOW_MS + 1, None)
    batches = written(
        *(row(at, timestamp=time, timestamp_type=LOG_APPEND_TIME) for at, time in enumerate(times))
    )  # fmt: skip
    assert [one.covered.start for one in batches] == [0, 2, 4]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5), st.sampled_from((0, 0x08)))
def test_records_of_any_time_come_back(times_ms: list[int], attributes: int) -> None:
    assume(all(-(2**63) <= time_ms - times_ms[0] < 2**63 for time_ms in times_ms))  # a batch stores that in 64 bits
    sent = tuple(Sent(delta, timestamp_ms=time_ms) for delta, time_ms in enumerate(times_ms))
    batch = bytes(Written(0, sent, attributes=attributes))
    found = decoded(batch).records
    again = log(list(encode(found)))
    assert decoded(again).records.equals(found)
    read = list(read_by_kafka_python(batch))
    assert list(read_by_kafka_python(again)) == read
    told = [struct.unpack_from(">q", canonical(found.slice(at, 1)), TIME_AT)[0] for at in range(len(found))]
    assert told == [-1 if one["timestamp"] is None else one["timestamp"] for one in read]


@pytest.mark.parametrize(
    "said", ["create_time soon", "create_time 9223372036854775808", "create_time 1 2", "late 7", None]
)
def test_a_timestamp_type_that_no_record_has_is_refused_naming_the_row(said: str | None) -> None:
    odd = records([row(7, timestamp=None, timestamp_type=said)])
    for use in (canonical, lambda rows: list(encode(rows))):
        with pytest.raises(CorruptRecord, match="timestamp_type") as caught:
            use(odd)
        assert caught.value.offset == 7


def test_a_batch_has_about_a_megabyte() -> None:
    batches = written(*(row(offset, value=bytes(10_000)) for offset in range(1000)))
    sizes = [len(one.whole) for one in batches]
    assert all(BATCH_BYTES - 11_000 < size <= BATCH_BYTES for size in sizes[:-1])
    assert len(batches) == 11


def test_offsets_that_are_too_far_for_one_batch() -> None:
    near, far = MAX_DELTA, MAX_DELTA + 1
    assert len(written(row(0), row(near))) == 1
    assert len(written(row(0), row(far))) == 2
    assert len(written(row(0), row(3), row(near), row(far), row(far + 9))) == 2


@pytest.mark.parametrize("epoch", [None, 0, 9])
def test_an_empty_batch_leads_up_to_its_end(epoch: int | None) -> None:
    last = list(encode(records([row(10)])))
    batches = [*last, empty_batch(Offset(25), last[-1].covered.end, epoch)]
    found = decoded(log(batches))
    assert (rows_of(found.records), found.reached, found.epoch) == ([row(10)], 25, epoch)
    assert list(read_by_kafka_python(log(batches))) == [row(10)]
    assert batches[-1].covered == span(11, 25)


def test_an_empty_batch_begins_as_near_as_it_has_to() -> None:
    end = Offset(2**40)
    made = empty_batch(end, Offset(0), 1)
    assert made.covered == OffsetRange(Offset(end - MAX_DELTA), end)
    assert decoded(made.whole, OffsetRange(Offset(0), END)).reached == end


# the folder of a topic's partitions: names, sizes, where logs begin and end; and that it is there whole or not


ORDERS = LogId.parse("kafka/prod/orders.eu-1/0")


def rebuilt(
    to: Path, rows: Sequence[Row], first: int, end: int, epoch: int | None = 0, size_bytes: int = 1 << 30
) -> dict[str, bytes]:
    """The files of a log of one partition, by their offsets."""
    with RebuiltFolder(to, OWN) as folder:
        files = RebuiltPartition(folder, ORDERS, Offset(first), size_bytes, with_epochs=True)
        for one in rows:
            files.write(records([one]))
        files.finish(Offset(end), epoch)
        folder.finish()
    assert [path.name for path in to.iterdir()] == ["orders.eu-1-0"]
    found = {path.stem: path.read_bytes() for path in sorted((to / "orders.eu-1-0").iterdir())}
    assert len(found) == files.files
    return found


def read_back(files: dict[str, bytes]) -> tuple[list[Row], int, int | None]:
    """All records, where the last batch ends, and its epoch."""
    found = decoded(b"".join(files.values()))
    return rows_of(found.records), found.reached, found.epoch


def test_folders_are_named_as_brokers_name_them() -> None:
    assert (folder_name(ORDERS), folder_name(LogId.parse("kafka/prod/payments/12"))) == ("orders.eu-1-0", "payments-12")
    assert all(OWN.fullmatch(name) for name in ("orders.eu-1-0", f"payments-12/{5:020d}.log"))
    assert not any(OWN.fullmatch(name) for name in ("notes.txt", "payments-12/notes.txt", "payments-12/x-1"))


def test_files_are_full_and_begin_with_a_batch(tmp_path: Path) -> None:
    rows = [row(offset, value=bytes(1000)) for offset in range(10, 40, 3)]
    files = rebuilt(tmp_path / "to", rows, 10, 38, size_bytes=2500)
    assert list(files) == [f"{offset:020d}" for offset in (10, 16, 22, 28, 34)]
    assert all(2000 < len(data) <= 2500 for data in files.values())
    assert [rows_of(decoded(data).records)[0]["offset"] for data in files.values()] == [10, 16, 22, 28, 34]
    assert read_back(files) == (rows, 38, 0)


def test_a_batch_that_is_larger_than_a_file_has_one_of_its_own(tmp_path: Path) -> None:
    files = rebuilt(tmp_path / "to", [row(0), row(1, value=bytes(5000)), row(2)], 0, 3, size_bytes=1000)
    assert list(files) == [f"{offset:020d}" for offset in range(3)]


@pytest.mark.parametrize(("mark", "epoch"), [(None, 3), (2, 3), (3, 3), (7, 7)])
def test_an_empty_batch_leads_over_a_hole_to_the_end(tmp_path: Path, mark: int | None, epoch: int) -> None:
    """Epochs never go back: of the log's and the position's the later one counts."""
    rows = [row(5, leader_epoch=3)]
    assert read_back(rebuilt(tmp_path / "to", rows, 0, 900, mark)) == (rows, 900, epoch)


def test_epochs_are_left_out_unless_they_are_wanted(tmp_path: Path) -> None:
    with RebuiltFolder(tmp_path / "to", OWN) as folder:
        files = RebuiltPartition(folder, ORDERS, Offset(0), 1 << 30)
        files.write(records([row(0, leader_epoch=3), row(1, leader_epoch=7)]))
        files.finish(Offset(5), 9)
        folder.finish()
    assert files.last_epoch is None
    (file,) = (tmp_path / "to").glob("*/*")
    assert read_back({"": file.read_bytes()}) == ([row(0, leader_epoch=None), row(1, leader_epoch=None)], 5, None)


def test_a_log_without_a_record_ends_where_it_should(tmp_path: Path) -> None:
    assert rebuilt(tmp_path / "new", [], 40, 40) == {f"{40:020d}": b""}
    files = rebuilt(tmp_path / "aborted", [], 40, 60, 1)
    assert (list(files), read_back(files)) == ([f"{40:020d}"], ([], 60, 1))


def test_offsets_that_are_too_far_for_one_file(tmp_path: Path) -> None:
    """In its index an offset counts from the file's own, in 32 bits."""
    far = MAX_DELTA + 1
    rows = [row(0), row(MAX_DELTA), row(far), row(5 * far)]
    files = rebuilt(tmp_path / "to", rows, 0, 9 * far)
    assert list(files) == [f"{offset:020d}" for offset in (0, far, 5 * far, 9 * far - MAX_DELTA)]
    assert read_back(files) == (rows, 9 * far, 0)
