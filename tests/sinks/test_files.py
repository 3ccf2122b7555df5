"""Files as any Parquet reader sees them."""

import errno
import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinks.delta import files
from sinks.delta.data_file import Statistics
from sinks.delta.files import EVERY_BYTES, EarlySync, FileWriter, discard, new_name, row_groups
from sinks.tables import KAFKA_LOG, LOG, with_identity
from sources.offsets import Offset, OffsetRange
from tests.around import at_each
from tests.patience import wait_until
from tests.sinks.memory_master import MemoryMaster, chunk_of
from tests.sinks.memory_partition import partitions

MASTER = MemoryMaster((100,) * 25)


def table_rows(first: int, last: int) -> pa.RecordBatch:
    return with_identity(LOG, MASTER.log_id, 0, chunk_of(MASTER.records()[first:last]).records)


def test_a_file_holds_what_was_written(tmp_path: Path) -> None:
    name = new_name(Offset(0))
    with FileWriter(LOG, str(tmp_path), name) as writer:
        writer.write(table_rows(0, 10))
        writer.write(table_rows(10, 25))
        file = writer.finish()
    path = tmp_path / name
    assert (file.name, file.size_bytes, file.records) == (name, path.stat().st_size, 25)
    groups = pq.ParquetFile(path).metadata
    assert [groups.row_group(at).num_rows for at in range(groups.num_row_groups)] == [10, 15]
    expected = pa.Table.from_batches([table_rows(0, 10), table_rows(10, 25)])
    assert pq.read_table(path).cast(expected.schema).equals(expected)


def test_physical_types_are_deltas(tmp_path: Path) -> None:
    with FileWriter(LOG, str(tmp_path), "one.parquet") as writer:
        writer.write(table_rows(0, 25))
        writer.finish()
    file = pq.ParquetFile(tmp_path / "one.parquet")
    columns = {file.schema.column(at).path: file.schema.column(at) for at in range(len(file.schema))}
    assert columns["store_timestamp"].physical_type == "INT64"
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in str(columns["store_timestamp"].logical_type)
    assert columns["topic"].logical_type.type == "STRING"
    assert columns["body"].logical_type.type == "NONE"
    assert {"keys.list.element", "properties.key_value.key", "properties.key_value.value"} <= set(columns)
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


ORDERS = partitions((1, 4, 7), (2, 5, 8), end=10)


def kafka_rows(number: int) -> pa.RecordBatch:
    """Three of a partition: those of 0 have all of them a time, those of 1 none."""
    chunk = ORDERS[number].chunk(OffsetRange(Offset(0), Offset(10)))
    return with_identity(KAFKA_LOG, ORDERS[number].log_id, 2, chunk.records)


@pytest.mark.parametrize(
    ("numbers", "nulls", "times"),
    [
        ((0, 1), 3, ("2024-02-29T23:59:30.250Z", "2024-02-29T23:59:31.750Z")),
        ((1,), 3, (None, None)),
        ((0,), 0, ("2024-02-29T23:59:30.250Z", "2024-02-29T23:59:31.750Z")),
    ],
)
def test_what_a_file_of_kafka_log_says_of_itself(
    tmp_path: Path, numbers: tuple[int, ...], nulls: int, times: tuple[str | None, str | None]
) -> None:
    with FileWriter(KAFKA_LOG, str(tmp_path), "one.parquet") as writer:
        for number in numbers:
            writer.write(kafka_rows(number))
        file = writer.finish()
    expected = pa.Table.from_batches([kafka_rows(number) for number in numbers])
    assert pq.read_table(tmp_path / "one.parquet").cast(expected.schema).equals(expected)
    found = json.loads(file.statistics)
    assert found["numRecords"] == 3 * len(numbers)
    assert found["nullCount"] == {
        "log_id": 0, "epoch": 0, "topic": 0, "partition": 0, "offset": 0, "timestamp": nulls,
    }  # fmt: skip
    assert (found["minValues"].get("timestamp"), found["maxValues"].get("timestamp")) == times
    assert (found["minValues"]["partition"], found["maxValues"]["partition"]) == (numbers[0], numbers[-1])
    assert found["maxValues"]["log_id"] == f"kafka/prod/orders/{numbers[-1]}"
    assert (found["minValues"]["epoch"], found["maxValues"]["topic"]) == (2, "orders")


def test_how_the_columns_of_kafka_log_are_stored(tmp_path: Path) -> None:
    with FileWriter(KAFKA_LOG, str(tmp_path), "one.parquet") as writer:
        writer.write(kafka_rows(0))
        writer.finish()
    group = pq.ParquetFile(tmp_path / "one.parquet").metadata.row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    stored = {column.path_in_schema: set(column.encodings) for column in columns}
    assert {name for name, encodings in stored.items() if "RLE_DICTIONARY" in encodings} == {
        "log_id", "epoch", "topic", "partition", "leader_epoch", "timestamp_type", "headers.list.element.key",
    }  # fmt: skip
    assert {name for name, encodings in stored.items() if "DELTA_BINARY_PACKED" in encodings} == {"offset", "timestamp"}


@pytest.mark.parametrize("is_last", [True, False])
def test_a_failure_in_the_background_is_raised_at_the_next_call(tmp_path: Path, is_last: bool) -> None:
    """Nothing is written behind it, and whoever shares the room has it again."""
    room = threading.Semaphore(4)
    with pytest.raises(ValueError, match="schema"), FileWriter(LOG, str(tmp_path), "one.parquet", room) as writer:
        writer.write(table_rows(0, 10))
        writer.write(table_rows(0, 10).drop_columns(["body"]))
        if not is_last:
            with suppress(ValueError):  # it may be noticed here, or at the end
                writer.write(table_rows(10, 25))
        writer.finish()
    assert list(tmp_path.iterdir()) == []
    assert all(room.acquire(blocking=False) for _ in range(4))


def test_no_batch_waits_behind_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file holds in memory is the batch that is being written, however fast they come."""
    under_way: list[int] = []
    add, most = Statistics.add, 0

    def noted(self: Statistics, batch: pa.RecordBatch) -> None:
        under_way.append(batch.num_rows)
        time.sleep(0.02)
        add(self, batch)
        under_way.pop()

    monkeypatch.setattr(Statistics, "add", noted)
    with FileWriter(LOG, str(tmp_path), "one.parquet") as writer:
        for first in range(0, 25, 5):
            writer.write(table_rows(first, first + 5))
            most = max(most, len(under_way))
        assert writer.finish().records == 25
    assert most == 1


def test_files_that_share_room_are_written_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)  # the last batch of the one file and the first one of the other meet
    at_each(monkeypatch, Statistics, "add", lambda *_: both.wait(20), when=lambda _, batch: batch.num_rows in (3, 4))
    room = threading.Semaphore(2)
    with FileWriter(LOG, str(tmp_path), "a", room) as one, FileWriter(LOG, str(tmp_path), "b", room) as two:
        for writer, rows in ((one, 1), (one, 2), (one, 3), (two, 4), (two, 5)):
            writer.write(table_rows(0, rows))
        assert [file.result().records for file in (one.finishing(), two.finishing())] == [6, 9]
    assert [pq.read_table(tmp_path / name).num_rows for name in ("a", "b")] == [6, 9]


def test_no_more_batches_wait_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    at_each(monkeypatch, Statistics, "add", lambda *_: go_on.wait(20))
    room = threading.Semaphore(3)
    with FileWriter(LOG, str(tmp_path), "a", room) as one, FileWriter(LOG, str(tmp_path), "b", room) as two:
        for writer in (one, one, two):
            writer.write(table_rows(0, 5))
        with ThreadPoolExecutor(1) as pool:
            fourth = pool.submit(two.write, table_rows(5, 10))
            with pytest.raises(TimeoutError):
                fourth.result(timeout=0.2)
            go_on.set()
            fourth.result(timeout=20)
        assert [writer.finish().records for writer in (one, two)] == [10, 10]


def test_rows_are_gathered_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.delta.files._ROW_GROUP_BYTES", 100)
    batches = [pa.record_batch({"n": pa.array(range(at, at + 5), pa.int64())}) for at in range(0, 40, 5)]
    found = list(row_groups(batches))
    assert [batch.num_rows for batch in found] == [15, 15, 10]  # 40 bytes each: three are enough
    assert [value for batch in found for value in batch["n"].to_pylist()] == list(range(40))


def test_discard_takes_what_is_there_and_minds_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    discard(str(tmp_path), ["a", "missing"])
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


@contextmanager
def early(path: Path) -> Iterator[EarlySync]:
    path.touch()
    sync = EarlySync(path)
    try:
        yield sync
    finally:
        sync.close()


def test_a_file_is_synced_each_time_it_has_grown_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with early(tmp_path / "file") as sync:
        sync.grown(EVERY_BYTES - 1)
        assert synced == []
        for times in (1, 2):
            sync.grown(times * EVERY_BYTES)
            wait_until(lambda: len(synced) == times, "the sync")  # noqa: B023 - waited for here
            sync.grown((times + 1) * EVERY_BYTES - 1)
            assert len(synced) == times


def test_nobody_waits_for_the_disk_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = threading.Event()
    synced: list[int] = []

    def fsync(descriptor: int) -> None:
        assert slow.wait(20)
        synced.append(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with early(tmp_path / "file") as sync:
        for times in range(1, 5):
            sync.grown(times * EVERY_BYTES)  # the first is still under way
        assert synced == []
        slow.set()
    assert len(synced) == 1


def test_what_the_disk_refused_is_an_error_at_the_latest_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    (tmp_path / "file").touch()
    sync = EarlySync(tmp_path / "file")
    sync.grown(EVERY_BYTES)
    with pytest.raises(OSError, match="Input/output error"):
        sync.close()
    sync.close()


def test_sync_reaches_a_file_and_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
    )
    (tmp_path / "file").touch()
    files.sync(tmp_path / "file")
    files.sync(tmp_path)
    assert synced == [str(tmp_path / "file"), str(tmp_path)]
