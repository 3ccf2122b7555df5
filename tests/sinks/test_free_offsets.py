"""The task function on logs whose offsets may have no record, called as Spark calls it, without Spark."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.batch.proof import SplitReport, WrittenStretch, prove_batch
from sinks.batch.receiver import LogWriter
from sinks.batch.tasks import write_splits
from sinks.values.continuity import checksum_of
from sources.errors import CoverageError, Gap, LogtwinError, Recreated, Rewritten
from sources.master import Chunk, Known, PlannedSplit
from sources.offsets import Offset, OffsetRange
from tests.sinks.memory_partition import ORDERS, TOPIC_ID, MemoryPartition, ScriptedPartition, partitions
from tests.spans import span

HOLED = (0, 1, 2, 7, 8, 19, 20, 21, 33)
TOPIC = partitions(HOLED, tuple(range(40)), (), end=40)
ALL = TOPIC[1]
Split = tuple[int, tuple[int, int], tuple[int, int]]
"""Partition, split, its batch."""


def log(number: int) -> str:
    return f"{ORDERS}/{number}"


def whole(number: int, start: int = 0, end: int = 40) -> Split:
    return number, (start, end), (start, end)


def writers(warehouse: Path, topic: Mapping[int, MemoryPartition], known: Mapping[int, Known]) -> dict[str, LogWriter]:
    """Of partitions of which that is `known`; of all others nothing is committed."""
    logs = {}
    for number, master in topic.items():
        at = known.get(number, Known())
        logs[log(number)] = LogWriter(master.continuing(at), 0, at.offset, None, str(warehouse))
    return logs


def at(offset: int, mark: int | None = None, identity: str | None = TOPIC_ID) -> Known:
    return Known(identity, Offset(offset), mark)


def reports(
    warehouse: Path,
    *splits: Split,
    topic: Mapping[int, MemoryPartition] = TOPIC,
    known: Mapping[int, Known] | None = None,
) -> list[SplitReport]:
    logs = writers(warehouse, topic, known or {})
    planned = [PlannedSplit(log(number), span(*batch), span(*split)) for number, split, batch in splits]
    return list(write_splits((split, logs[split.log_id]) for split in planned))


def written(found: Iterable[SplitReport]) -> list[WrittenStretch]:
    """Of reports that nothing is wrong with."""
    assert [report.error for report in found if report.error is not None] == []
    return [piece for report in found for piece in report.written]


def stored(warehouse: Path) -> list[dict[str, Any]]:
    """Every row, file by file in the order of the file."""
    return [row for path in sorted(warehouse.rglob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def files(warehouse: Path) -> set[str]:
    return {path.name for path in (warehouse / "kafka_log").iterdir()}


def checksum(partition: MemoryPartition, covered: OffsetRange) -> str:
    return checksum_of(partition.chunk(covered).raw)


# --- what is written, and what is said of it


def test_partitions_share_one_file_each_in_order(warehouse: Path) -> None:
    found = reports(warehouse, whole(1), whole(0), whole(2), known={1: at(5)})
    (name,) = files(warehouse)
    assert {report.log_id: report.files for report in found} == {log(0): {name}, log(1): {name}, log(2): set()}
    assert {piece.file.records for piece in written(found) if piece.file is not None} == {9 + 35}
    rows = stored(warehouse)
    runs = {key: list(of_log) for key, of_log in groupby(rows, key=lambda row: (row["log_id"], row["epoch"]))}
    assert len(rows) == sum(map(len, runs.values()))  # none comes twice
    for row in rows:
        del row["log_id"], row["epoch"]
    assert runs == {
        (log(0), 0): [{**row, "topic": "orders", "partition": 0} for row in TOPIC[0].rows(span(0, 40))],
        (log(1), 0): [{**row, "topic": "orders", "partition": 1} for row in TOPIC[1].rows(span(5, 40))],
    }


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("scratch")
    (folder / "kafka_log").mkdir()
    return folder


def pieces_of(scratch: Path, partition: MemoryPartition, splits: Iterable[OffsetRange]) -> list[WrittenStretch]:
    write = LogWriter(partition, 0, None, None, str(scratch))
    return written(list(write_splits((PlannedSplit(log(0), span(0, 40), split), write) for split in splits)))


@given(st.sets(st.integers(0, 39)), st.integers(1, 20), st.integers(1, 15))
def test_how_it_is_cut_changes_nothing(scratch: Path, offsets: set[int], split: int, chunk: int) -> None:
    """Of what is read: the records, their number, their bytes, and the times and the epoch at the end."""
    partition = MemoryPartition(0, tuple(sorted(offsets)), 40, chunk_offsets=chunk)
    found = pieces_of(scratch, partition, span(0, 40).in_pieces(split))
    (whole,) = pieces_of(scratch, replace(partition, chunk_offsets=40), [span(0, 40)])
    assert sum(one.records for one in found) == whole.records == len(offsets)
    assert sum(one.bytes for one in found) == whole.bytes
    firsts, lasts = ([getattr(one, f"{end}_store_us") for one in found] for end in ("first", "last"))
    assert min((one for one in firsts if one is not None), default=None) == whole.first_store_us
    assert max((one for one in lasts if one is not None), default=None) == whole.last_store_us
    assert found[-1].mark == whole.mark == 3
    assert [one.checksum for one in found] == [checksum(partition, piece) for piece in span(0, 40).in_pieces(split)]


def test_holes_alone_leave_no_file_but_move_the_position(warehouse: Path) -> None:
    found = reports(warehouse, whole(2), whole(0, 9, 19))
    pieces = written(found)
    assert [(piece.covered.range, piece.records, piece.bytes, piece.file) for piece in pieces] == [
        (span(0, 40), 0, 0, None),
        (span(9, 19), 0, 0, None),
    ]
    assert [(piece.first_store_us, piece.last_store_us) for piece in pieces] == [(None, None)] * 2
    assert {piece.checksum for piece in pieces} == {checksum_of(b"")}
    assert files(warehouse) == set()
    proven = prove_batch(found[:1], Offset(0))
    assert proven is not None
    assert (proven.range, proven.mark, proven.files, proven.lost) == (span(0, 40), 3, [], ())
    assert [(row.range, row.records) for row in proven.ledger(9)] == [(span(0, 40), 0)]


@pytest.mark.parametrize(("record_bytes", "expected"), [(10_000, [span(0, 40)]), (10, [span(0, 20), span(20, 40)])])
def test_how_long_a_file_is_bytes_say_and_not_offsets(
    warehouse: Path, record_bytes: int, expected: list[OffsetRange]
) -> None:
    """A split of so many offsets as nobody thought to be large; a chunk has far more bytes than the split offsets."""
    partition = replace(ALL, chunk_offsets=20, split_offsets=40, record_bytes=record_bytes)
    sizes = [len(ALL.chunk(piece).raw) for piece in (span(0, 20), span(20, 40))]
    assert 40 < 450 < min(sizes)
    found = written(reports(warehouse, whole(1), topic={1: partition}))
    assert [piece.covered.range for piece in found] == expected
    assert sum(piece.bytes for piece in found) == sum(sizes)


# --- the handshake, log by log


def test_only_the_split_at_the_position_is_read_with_its_epoch(warehouse: Path) -> None:
    topic = partitions((), (), end=40)
    found = reports(
        warehouse, (0, (0, 30), (0, 40)), (0, (30, 40), (0, 40)), whole(1, 15), topic=topic, known={0: at(15, 1)}
    )
    assert [piece.mark for piece in written(found)] == [2, 3, 3]
    assert sorted(topic[0].asked) == [(span(15, 30), 1), (span(30, 40), None)]
    assert topic[1].asked == [(span(15, 40), None)]


@pytest.mark.parametrize(
    ("known", "kind", "offset"),
    [(at(15, mark=7), Rewritten, 15), (at(15, identity="another"), Recreated, None), (at(10), Gap, 10)],
    ids=["another history", "another topic", "a gap"],
)
def test_a_split_off_the_position_is_refused_alone(
    warehouse: Path, known: Known, kind: type[LogtwinError], offset: int | None
) -> None:
    sound, wrong = reports(warehouse, whole(0), whole(1, 15), known={1: known})
    assert wrong.error is not None
    assert (type(wrong.error), wrong.error.log, wrong.error.offset) == (kind, log(1), offset)
    assert wrong.written == ()
    assert written([sound])[0].records == 9
    assert {row["log_id"] for row in stored(warehouse)} == {log(0)}


# --- what goes wrong while reading


def moved(chunk: Chunk, covered: OffsetRange) -> Chunk:
    """The same records, said to be of another range."""
    return replace(chunk, covered=covered)


def backwards(covered: OffsetRange) -> Chunk:
    chunk = ALL.chunk(covered)
    return replace(chunk, records=chunk.records.take(pa.array(range(chunk.records.num_rows - 1, -1, -1))))


@pytest.mark.parametrize(
    ("chunks", "offset"),
    [
        ((), 0),
        ((ALL.chunk(span(0, 30)),), 30),
        ((ALL.chunk(span(0, 20)), ALL.chunk(span(21, 40))), 20),
        ((ALL.chunk(span(0, 20)), ALL.chunk(span(19, 40))), 20),
        ((ALL.chunk(span(0, 20)),) * 2, 20),
        ((ALL.chunk(span(1, 40)),), 0),
        ((ALL.chunk(span(0, 41)),), 40),
        ((ALL.chunk(span(0, 40)), ALL.chunk(span(40, 41))), 40),
        ((moved(ALL.chunk(span(0, 40)), span(0, 39)), ALL.chunk(span(39, 40))), 39),
        ((moved(ALL.chunk(span(0, 40)), span(0, 20)), ALL.chunk(span(20, 40))), 20),
        ((ALL.chunk(span(0, 20)), moved(ALL.chunk(span(19, 40)), span(20, 40))), 19),
        ((backwards(span(0, 40)),), 38),
        ((replace(whole_chunk := ALL.chunk(span(0, 40)), raw=whole_chunk.raw[:-1]),), 0),
    ],
    ids=[
        "nothing", "short", "a hole", "an overlap", "twice", "late", "too long", "one too many", "a record behind",
        "records of another range", "a record before", "not in order", "other bytes",
    ],
)  # fmt: skip
def test_chunks_that_are_not_the_split_are_refused(warehouse: Path, chunks: tuple[Chunk, ...], offset: int) -> None:
    """By the task, or by the proof."""
    found = reports(warehouse, whole(1), topic={1: ScriptedPartition.like(ALL, chunks=chunks)}, known={1: at(0)})
    with pytest.raises(CoverageError) as caught:
        prove_batch(found, Offset(0))
    assert caught.value.offset == offset
    assert caught.value.hint
