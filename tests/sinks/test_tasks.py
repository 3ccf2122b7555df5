"""The task function, called as Spark calls it, without Spark."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinks.tasks import SplitWriter, Written, unpack
from sources.errors import CorruptRecord, CoverageError, Gap, LogtwinError, MasterUnreachable, ReplicaError, find_error
from sources.master import RANGES_SCHEMA, Chunk
from sources.offsets import Offset, OffsetRange
from tests.sinks.memory_master import Doubling, Failing, HoledInside, MemoryMaster, raw_bytes

SIZES = (10, 90, 300, 5, 5, 90)  # records start at 0, 10, 100, 400, 405, 410 and end at 500
MASTER = MemoryMaster(SIZES)


def splits(*pieces: tuple[int, int], batch: tuple[int, int] = (0, 500), log_id: str = "rocketmq/broker-a") -> Any:
    rows = [dict(zip(RANGES_SCHEMA.names, (log_id, *batch, start, end), strict=True)) for start, end in pieces]
    return [pa.RecordBatch.from_pylist(rows, schema=RANGES_SCHEMA)]


def reports(
    folder: Path, batches: Any, master: MemoryMaster = MASTER, position: int | None = None
) -> list[dict[str, Any]]:
    write = SplitWriter(master, 0, None if position is None else Offset(position), str(folder))
    return [row for batch in pickle.loads(pickle.dumps(write))(batches) for row in batch.to_pylist()]  # noqa: S301 - ours


def one(folder: Path, batches: Any, master: MemoryMaster = MASTER, position: int | None = None) -> Written | None:
    return unpack(reports(folder, batches, master, position)[0])


def test_a_split_is_written_and_reported(tmp_path: Path) -> None:
    written = one(tmp_path, splits((0, 500)))
    assert written is not None
    assert written.covered.range == OffsetRange(Offset(0), Offset(500))
    assert written.covered.last_record_start == 410
    raw = b"".join(raw_bytes(row) for row in MASTER.records())
    assert written.checksum == f"sha256:{hashlib.sha256(raw).hexdigest()}"
    stored = [row["store_timestamp"] for row in MASTER.records()]
    assert written.first_store_us == int(stored[0].timestamp() * 1_000_000)
    assert written.last_store_us == int(stored[-1].timestamp() * 1_000_000)
    rows = pq.read_table(tmp_path / written.file.name).to_pylist()
    assert [row["offset"] for row in rows] == [0, 10, 100, 400, 405, 410]
    assert {(row["log_id"], row["epoch"]) for row in rows} == {("rocketmq/broker-a", 0)}


class Rewritten(MemoryMaster):
    """The same records in the same places, made of other bytes."""

    __slots__ = ()

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk]:
        for chunk in MemoryMaster.read(self, owned, committed=committed, boundary=boundary):
            yield replace(chunk, raw=memoryview(bytes(chunk.raw).replace(b"|", b"/")))


def test_other_bytes_in_the_same_places_have_another_checksum(tmp_path: Path) -> None:
    """HA-70."""
    written, other = (one(tmp_path, splits((0, 500)), master) for master in (MASTER, Rewritten(SIZES)))
    assert written is not None
    assert other is not None
    assert written.covered == other.covered
    assert written.checksum != other.checksum


def test_a_record_belongs_to_the_split_it_starts_in(tmp_path: Path) -> None:
    found = [unpack(row) for row in reports(tmp_path, splits((0, 50), (50, 350), (350, 450), (450, 500)))]
    covered = [None if piece is None else (piece.covered.range.start, piece.covered.range.end) for piece in found]
    assert covered == [(0, 100), (100, 400), (400, 500), None]
    assert len(list(tmp_path.iterdir())) == 3


def test_splits_below_the_position_are_left_alone(tmp_path: Path) -> None:
    found = [unpack(row) for row in reports(tmp_path, splits((0, 50), (50, 450), (450, 500)), position=100)]
    assert [piece and piece.covered.range for piece in found] == [None, OffsetRange(Offset(100), Offset(500)), None]


def test_a_replay_reads_nothing(tmp_path: Path) -> None:
    broken = Failing(SIZES)
    assert one(tmp_path, splits((0, 500)), broken, position=500) is None
    assert list(tmp_path.iterdir()) == []


def failure(folder: Path, batches: Any, master: MemoryMaster = MASTER, position: int | None = None) -> LogtwinError:
    with pytest.raises(LogtwinError) as caught:
        one(folder, batches, master, position)
    assert list(folder.iterdir()) == []
    assert caught.value.log == "rocketmq/broker-a"
    return caught.value


def test_a_gap_travels_as_a_value(tmp_path: Path) -> None:
    error = failure(tmp_path, splits((200, 500), batch=(200, 500)), position=100)
    assert isinstance(error, Gap)
    assert error.offset == 100


def test_a_corrupt_record_travels_as_a_value_and_leaves_no_file(tmp_path: Path) -> None:
    error = failure(tmp_path, splits((0, 500)), Failing(SIZES, error=CorruptRecord("bad checksum", offset=10)))
    assert isinstance(error, CorruptRecord)
    assert error.offset == 10


def test_a_batch_of_another_log_is_refused(tmp_path: Path) -> None:
    assert isinstance(failure(tmp_path, splits((0, 500), log_id="rocketmq/broker-b")), ReplicaError)


def test_rows_that_do_not_fill_the_chunk_are_refused(tmp_path: Path) -> None:
    error = failure(tmp_path, splits((0, 500)), HoledInside(SIZES, hole=100))
    assert isinstance(error, CoverageError)
    assert error.offset == 100


def test_what_a_retry_can_help_is_raised_for_spark_to_retry(tmp_path: Path) -> None:
    broken = Failing(SIZES, error=MasterUnreachable("no connection"))
    with pytest.raises(RuntimeError) as caught:
        reports(tmp_path, splits((0, 500)), broken)
    error = find_error(str(caught.value))
    assert isinstance(error, MasterUnreachable)
    assert error.log == "rocketmq/broker-a"
    assert list(tmp_path.iterdir()) == []


def test_a_master_that_reads_on_is_reported_as_it_is(tmp_path: Path) -> None:
    written = one(tmp_path, splits((0, 50)), Doubling(SIZES))
    assert written is not None
    assert written.covered.range.end == 400
