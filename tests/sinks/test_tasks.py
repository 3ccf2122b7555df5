"""The task function, called as Spark calls it, without Spark; and which task has which splits."""

import errno
import hashlib
import os
import pickle
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import sinks.batch.shared_file
from sinks.batch.proof import SplitReport, WrittenStretch
from sinks.batch.receiver import LogWriter
from sinks.batch.shared_file import SharedFile
from sinks.batch.tasks import TASK_BYTES, in_tasks, run_splits, write_splits
from sinks.values.continuity import Link
from sinks.values.incident import Action
from sources.errors import (
    AboveMaximum,
    BelowMinimum,
    ChecksumMismatch,
    CorruptRecord,
    CoverageError,
    Gap,
    LogtwinError,
    MasterSilent,
    MasterUnreachable,
    MissingSegment,
    Rewritten,
    SegmentError,
    StorageUnreachable,
)
from sources.loss import Condition
from sources.master import Chunk, Damage, PlannedSplit
from sources.offsets import LogId, Offset, OffsetRange
from tests.around import at_each
from tests.patience import PATIENCE_S
from tests.sinks.groups import Slow
from tests.sinks.memory_master import (
    Damaged,
    Failing,
    HoledInside,
    MemoryMaster,
    Overtaken,
    Rewriting,
    Short,
    raw_bytes,
)
from tests.spans import span

SIZES = (10, 90, 300, 5, 5, 90)  # records start at 0, 10, 100, 400, 405, 410 and end at 500
MASTER = MemoryMaster(SIZES)
AWAY = MasterUnreachable("it broke", offset=410)


def splits(
    *pieces: tuple[int, int], batch: tuple[int, int] = (0, 500), log_id: str = "rocketmq/broker-a"
) -> list[PlannedSplit]:
    return [PlannedSplit(log_id, span(*batch), span(*piece)) for piece in pieces]


def reports(
    warehouse: Path,
    planned: list[PlannedSplit],
    master: MemoryMaster = MASTER,
    position: int | None = None,
    link: Link | None = None,
    patience_s: float | None = None,
) -> list[SplitReport]:
    log = LogWriter(master, 0, None if position is None else Offset(position), link, str(warehouse), patience_s)
    given = [(split, log) for split in planned]
    travelled = pickle.loads(pickle.dumps(given))  # noqa: S301 - ours
    told: list[SplitReport] = pickle.loads(pickle.dumps(list(write_splits(travelled))))  # noqa: S301 - ours
    return told


def one(
    warehouse: Path, planned: list[PlannedSplit], master: MemoryMaster = MASTER, position: int | None = None
) -> list[WrittenStretch]:
    (report,) = reports(warehouse, planned, master, position)
    if report.error is not None:
        raise report.error
    return [*report.written]


def file_of(piece: WrittenStretch) -> str:
    assert piece.file is not None
    return piece.file.name


def files(warehouse: Path) -> list[str]:
    return sorted(path.parent.name for path in warehouse.rglob("*.parquet"))


def test_a_split_is_written_and_reported(warehouse: Path) -> None:
    (written,) = one(warehouse, splits((0, 500)))
    assert written.covered.range == span(0, 500)
    assert written.link == Link.of(span(410, 500), raw_bytes(MASTER.records()[-1]))
    assert written.covered.last_record_start == 410
    raw = b"".join(raw_bytes(row) for row in MASTER.records())
    assert written.checksum == f"sha256:{hashlib.sha256(raw).hexdigest()}"
    stored = [row["store_timestamp"] for row in MASTER.records()]
    assert written.first_store_us == int(stored[0].timestamp() * 1_000_000)
    assert written.last_store_us == int(stored[-1].timestamp() * 1_000_000)
    rows = pq.read_table(warehouse / "log" / file_of(written)).to_pylist()
    assert [row["offset"] for row in rows] == [0, 10, 100, 400, 405, 410]
    assert {(row["log_id"], row["epoch"]) for row in rows} == {("rocketmq/broker-a", 0)}


def test_other_bytes_in_the_same_places_have_another_checksum(warehouse: Path) -> None:
    """HA-70."""
    (written,), (other,) = (one(warehouse, splits((0, 500)), master) for master in (MASTER, Rewriting(SIZES)))
    assert written.covered == other.covered
    assert written.checksum != other.checksum


def test_a_record_belongs_to_the_split_it_starts_in(warehouse: Path) -> None:
    found = reports(warehouse, splits((0, 50), (50, 350), (350, 450), (450, 500)))
    covered = [[piece.covered.range for piece in report.written] for report in found]
    assert covered == [[span(0, 100)], [span(100, 400)], [span(400, 500)], []]
    assert files(warehouse) == ["log"] * 3


def test_a_split_that_no_one_could_cut_is_several_files(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One ends with the chunk in which it gets half as long as a split should be at most: 10 + 90, 300, 5 + 5 + 90."""
    monkeypatch.setattr(sinks.batch.shared_file, "HELD_BYTES", 0)
    master = MemoryMaster(SIZES, chunk_records=1, split_bytes=200)
    (report,) = reports(warehouse, splits((0, 500)), master)
    assert [piece.covered.range for piece in report.written] == [span(0, 100), span(100, 400), span(400, 500)]
    offsets = [pq.read_table(warehouse / "log" / file_of(piece))["offset"].to_pylist() for piece in report.written]
    assert offsets == [[0, 10], [100], [400, 405, 410]]
    raw = [raw_bytes(row) for row in MASTER.records()]
    digests = [hashlib.sha256(b"".join(raw[first:last])).hexdigest() for first, last in ((0, 2), (2, 3), (3, 6))]
    assert [piece.checksum for piece in report.written] == [f"sha256:{digest}" for digest in digests]
    assert [piece.records for piece in report.written] == [2, 1, 3]


@pytest.mark.parametrize(
    ("sizes", "split_bytes", "cuts_batches", "ends"),
    [
        # the last one begins with the first chunk in the last eighth of what a split should be at most
        ((40, 40, 40, 40, 15, 5, 20), 160, False, [80, 160, 180, 200]),
        ((40, 40, 40, 40, 15, 5, 20), 176, False, [120, 180, 200]),
        ((40, 40, 40, 40, 15, 5, 20), 360, False, [200]),
        # a split that was cut is one file up to an eighth longer
        ((20,) * 9, 160, True, [180]),
        ((20,) * 9, 160, False, [80, 160, 180]),
    ],
)
def test_where_the_files_of_a_split_end(
    warehouse: Path, sizes: tuple[int, ...], split_bytes: int, cuts_batches: bool, ends: list[int]
) -> None:
    master = MemoryMaster(sizes, chunk_records=1, split_bytes=split_bytes, cuts_batches=cuts_batches)
    (report,) = reports(warehouse, splits((0, sum(sizes))), master)
    assert [piece.covered.range for piece in report.written] == [span(*ends) for ends in pairwise([0, *ends])]


@pytest.mark.parametrize(
    "error",
    [CorruptRecord("bad", offset=400), ChecksumMismatch("bad", offset=400), MissingSegment("gone", offset=400),
     BelowMinimum("deleted", offset=400)],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_what_is_sound_before_a_place_that_is_not_is_written(warehouse: Path, error: LogtwinError) -> None:
    bad = Failing(SIZES, at=400, error=error)
    (report,) = reports(warehouse, splits((0, 500)), bad)
    assert [piece.covered.range for piece in report.written] == [span(0, 400)]
    assert report.until == 400
    assert report.error is not None
    assert (type(report.error), report.error.log, report.error.offset) == (type(error), "rocketmq/broker-a", 400)


@pytest.mark.parametrize(
    "error", [Rewritten("other bytes", offset=400), AboveMaximum("cut", offset=400), ValueError("a defect")], ids=repr
)
def test_nothing_is_written_of_a_log_that_may_be_another(warehouse: Path, error: Any) -> None:
    (report,) = reports(warehouse, splits((0, 500)), Failing(SIZES, at=400, error=error))
    assert (report.written, report.until) == ((), None)
    assert report.error is not None
    assert files(warehouse) == []


def test_splits_below_the_position_are_left_alone(warehouse: Path) -> None:
    found = reports(warehouse, splits((0, 50), (50, 450), (450, 500)), position=100)
    assert [[piece.covered.range for piece in report.written] for report in found] == [[], [span(100, 500)], []]


def test_a_replay_reads_nothing(warehouse: Path) -> None:
    broken = Failing(SIZES)
    assert one(warehouse, splits((0, 500)), broken, position=500) == []
    assert files(warehouse) == []


def failure(warehouse: Path, batches: Any, master: MemoryMaster = MASTER, position: int | None = None) -> LogtwinError:
    with pytest.raises(LogtwinError) as caught:
        one(warehouse, batches, master, position)
    assert files(warehouse) == []
    assert caught.value.log == "rocketmq/broker-a"
    return caught.value


class BreakingOff(Damaged):
    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Any:
        yield from Damaged.read(self, owned, committed=committed, boundary=boundary)
        raise MasterUnreachable("it broke", offset=500)


@pytest.mark.parametrize(
    ("master", "start", "kind", "offset"),
    [
        (MASTER, 200, Gap, 100),
        (Failing(SIZES, at=100, error=CorruptRecord("bad checksum", offset=100)), 100, CorruptRecord, 100),
        (HoledInside(SIZES, hole=100), 100, CoverageError, 100),  # rows that do not fill the chunk
        (Failing(SIZES, error=MasterUnreachable("no connection")), 100, MasterUnreachable, None),
        (Failing(SIZES, split_bytes=200, at=410, error=AWAY), 100, MasterUnreachable, 410),
        (BreakingOff(SIZES, bad=(100,)), 100, MasterUnreachable, 500),
        (Damaged(SIZES, bad=(100,), error=SegmentError("misnamed", offset=100)), 100, SegmentError, 100),
    ],
    ids=["a gap", "corrupt", "a hole", "away", "in the last of several files", "after damage", "damage without a name"],
)
def test_an_error_travels_as_a_value_and_leaves_no_file(
    warehouse: Path, master: MemoryMaster, start: int, kind: type[LogtwinError], offset: int | None
) -> None:
    error = failure(warehouse, splits((start, 500), batch=(start, 500)), master, position=100)
    assert (type(error), error.offset) == (kind, offset)


# --- the link


def link_at(start: int) -> Link:
    row = next(row for row in MASTER.records() if row["offset"] == start)
    return Link.of(span(start, start + row["size"]), raw_bytes(row))


@pytest.mark.parametrize("pieces", [((0, 500),), ((0, 100), (100, 400), (400, 500)), ((0, 150), (150, 500))])
def test_the_record_before_the_position_is_read_and_not_written(
    warehouse: Path, pieces: tuple[tuple[int, int], ...]
) -> None:
    found = reports(warehouse, splits(*pieces), position=100, link=link_at(10))
    written = [piece for report in found for piece in report.written]
    assert (written[0].covered.range.start, written[-1].covered.range.end) == (100, 500)
    rows = pq.read_table(warehouse / "log" / file_of(written[0])).to_pylist()
    assert rows[0]["offset"] == 100
    whole = b"".join(raw_bytes(row) for row in MASTER.records() if row["offset"] in written[0].covered.range)
    assert written[0].checksum == f"sha256:{hashlib.sha256(whole).hexdigest()}"


@pytest.mark.parametrize(
    "master",
    [
        Rewriting(SIZES),
        Rewriting(SIZES, since=10),
        MemoryMaster((100, 300, 5, 5, 90)),  # no record starts at 10
        MemoryMaster((10, 40, 50, 300, 5, 5, 90)),  # a shorter one starts there
        Damaged(SIZES, bad=(10,)),
        Damaged(SIZES, gone=(10,)),
    ],
)
def test_a_master_with_another_record_before_the_position_is_refused(warehouse: Path, master: MemoryMaster) -> None:
    (report,) = reports(warehouse, splits((0, 500)), master, position=100, link=link_at(10))
    assert isinstance(report.error, Rewritten)
    assert (report.error.log, report.error.offset) == ("rocketmq/broker-a", 10)
    assert files(warehouse) == []


def test_a_link_that_retention_took_is_no_obstacle_and_a_position_is_below_the_minimum(warehouse: Path) -> None:
    (report,) = reports(warehouse, splits((0, 500)), Overtaken(SIZES, minimum=100), position=100, link=link_at(10))
    assert [piece.covered.range for piece in report.written] == [span(100, 500)]
    (report,) = reports(warehouse, splits((0, 500)), Overtaken(SIZES, minimum=400), position=100, link=link_at(10))
    assert (type(report.error), report.error and report.error.offset) == (BelowMinimum, 100)


# --- damage


def test_damage_ends_a_stretch_and_its_bytes_go_to_quarantine(warehouse: Path) -> None:
    (report,) = reports(warehouse, splits((0, 500)), Damaged(SIZES, bad=(100, 405)))
    assert [piece.covered.range for piece in report.written] == [span(0, 100), span(400, 405), span(410, 500)]
    assert {piece.condition for piece in report.damaged} == {Condition.CHECKSUM_FAILURE}
    assert [piece.range for piece in report.damaged] == [span(100, 250), span(250, 400), span(405, 408), span(408, 410)]
    assert report.quarantined is not None
    rows = pq.read_table(warehouse / "quarantine" / report.quarantined.name).to_pylist()
    assert [(row["offset"], row["end"]) for row in rows] == [(100, 250), (250, 400), (405, 408), (408, 410)]
    damaged = [row for row in MASTER.records() if row["offset"] in (100, 405)]
    assert b"".join(row["bytes"] for row in rows) == b"".join(map(raw_bytes, damaged))
    assert {(row["log_id"], row["epoch"], row["condition"], row["cause"]) for row in rows} == {
        ("rocketmq/broker-a", 0, "checksum_failure", "another body; expected 1, found 2")
    }
    assert files(warehouse) == ["log", "quarantine"]
    assert len({file_of(piece) for piece in report.written}) == 1
    assert [piece.records for piece in report.written] == [2, 1, 1]


def test_what_has_no_bytes_is_reported_and_leaves_no_file(warehouse: Path) -> None:
    (report,) = reports(warehouse, splits((0, 500)), Damaged(SIZES, gone=(410,)))
    assert [(piece.range, piece.condition, piece.action) for piece in report.damaged] == [
        (span(410, 500), Condition.GAP, Action.SKIPPED)
    ]
    assert report.quarantined is None
    assert files(warehouse) == ["log"]


# --- in a hurry


SLOW = Slow(SIZES, chunk_records=1, bytes_per_s=120)


def test_what_has_come_in_time_is_reported_with_where_it_ends(warehouse: Path) -> None:
    (report,) = reports(warehouse, splits((0, 500)), SLOW, patience_s=1.0)
    assert [piece.covered.range for piece in report.written] == [span(0, 100)]
    assert (report.until, report.error) == (100, None)
    (report,) = reports(warehouse, splits((0, 500)), SLOW, patience_s=5.0)
    assert ([piece.covered.range for piece in report.written], report.until) == ([span(0, 500)], None)


def test_nothing_of_a_batch_in_time_is_an_error(warehouse: Path) -> None:
    first, later = reports(warehouse, splits((100, 400), (400, 500), batch=(100, 500)), SLOW, 100, patience_s=0.01)
    assert isinstance(first.error, MasterSilent)
    assert (first.error.log, first.error.offset, first.error.expected) == (
        "rocketmq/broker-a",
        100,
        "one within 0.01 s",
    )
    assert (later.error, later.written, later.until) == (None, (), 400)
    assert files(warehouse) == []


def test_a_link_that_is_late_is_silence_and_no_rewrite(warehouse: Path) -> None:
    (report,) = reports(warehouse, splits((100, 500), batch=(100, 500)), SLOW, 100, link_at(10), patience_s=0.5)
    assert isinstance(report.error, MasterSilent)
    assert files(warehouse) == []


def test_a_short_read_that_is_not_late_has_no_early_end(warehouse: Path) -> None:
    """Only a reader knows whether its time was up: a master whose end was misread is short in a hurry, too."""
    (report,) = reports(warehouse, splits((0, 500)), Short(SIZES, stop=410), patience_s=1.0)
    assert ([piece.covered.range for piece in report.written], report.until) == ([span(0, 410)], None)


# --- several logs


def test_splits_are_read_side_by_side_and_reported_in_order(warehouse: Path) -> None:
    meeting = threading.Barrier(3)
    logs = {f"rocketmq/{name}": Meeting(SIZES, log_id=LogId("rocketmq", name), meeting=meeting) for name in "abc"}
    writers = {log_id: LogWriter(log, 0, None, None, str(warehouse)) for log_id, log in logs.items()}
    given = [(split, writers[log_id]) for log_id in logs for split in splits((0, 500), log_id=log_id)]
    found = list(write_splits(given))
    assert [report.log_id for report in found] == list(logs)
    assert [[piece.covered.range for piece in report.written] for report in found] == [[span(0, 500)]] * 3


@dataclass(frozen=True, slots=True)
class Meeting(MemoryMaster):
    """Sends once as many others are being read as there is room for at the meeting."""

    meeting: threading.Barrier = field(default_factory=lambda: threading.Barrier(1))

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk | Damage]:
        self.meeting.wait(PATIENCE_S)
        yield from MemoryMaster.read(self, owned, committed=committed, boundary=boundary)


def test_a_defect_fails_one_split_and_the_storage_all(warehouse: Path) -> None:
    (report,) = reports(warehouse, splits((0, 500)), Failing(SIZES, error=KeyError("a defect")))  # type: ignore[arg-type]
    assert type(report.error) is LogtwinError
    assert "KeyError: 'a defect'" in str(report.error.found)
    (warehouse / "log").rmdir()
    (warehouse / "log").write_text("no folder")
    with pytest.raises((OSError, pa.ArrowException)):
        reports(warehouse, splits((0, 500)))


def test_of_a_batch_that_finds_a_disk_full_no_file_is_left(
    plain: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first task has written its file when the second finds no room."""
    finished = Mock(side_effect=[None, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))])
    at_each(monkeypatch, SharedFile, "finish", finished, after=True)
    planned = [*splits((0, 500), log_id="rocketmq/a"), *splits((0, 500), log_id="rocketmq/b")]
    logs = {one.log_id: LogWriter(MASTER, 0, None, None, str(warehouse)) for one in planned}
    with pytest.raises(StorageUnreachable, match="No space left"):
        run_splits(plain, planned, logs)
    assert (finished.call_count, list((warehouse / "log").iterdir())) == (2, [])


MIB = 1024 * 1024


def of_sizes(sizes: Sequence[int]) -> list[tuple[PlannedSplit, int]]:
    """A split of each, told apart by its offsets."""
    ranges = [OffsetRange(Offset(number), Offset(number + 1)) for number in range(len(sizes))]
    return [(PlannedSplit("rocketmq/a", one, one), size) for one, size in zip(ranges, sizes, strict=True)]


def numbers(sizes: Sequence[int], cores: int) -> list[list[int]]:
    return [[split.owned.start for split in task] for task in in_tasks(of_sizes(sizes), cores=cores)]


@pytest.mark.parametrize(
    ("sizes", "cores", "tasks"),
    [
        ([], 4, []),
        # no more than splits or cores
        ([5, 7], 4, [[1], [0]]),
        ([1] * 5, 2, [[0, 2, 4], [1, 3]]),
        # about the same bytes in each
        ([100, 200, 300, 400, 500], 2, [[4, 1, 0], [3, 2]]),
        ([900, 100, 100, 100], 2, [[0], [1, 2, 3]]),
        # of unknown size they are dealt out evenly
        ([0] * 4, 2, [[0, 2], [1, 3]]),
    ],
)
def test_which_task_has_which(sizes: list[int], cores: int, tasks: list[list[int]]) -> None:
    assert numbers(sizes, cores) == tasks


def test_one_that_would_read_for_long_becomes_more_in_whole_rounds() -> None:
    """Two cores: as long as a task reads no more than that there are two of them."""
    full = [TASK_BYTES // 4] * 8
    assert len(in_tasks(of_sizes(full), cores=2)) == 2
    assert len(in_tasks(of_sizes([*full, MIB]), cores=2)) == 4
    assert len(in_tasks(of_sizes([3 * TASK_BYTES]), cores=2)) == 1  # a single split may be longer


@given(st.lists(st.integers(0, TASK_BYTES), max_size=40), st.integers(1, 8))
def test_each_split_is_given_once_and_no_task_is_left_without(sizes: list[int], cores: int) -> None:
    tasks = numbers(sizes, cores)
    assert sorted(number for task in tasks for number in task) == list(range(len(sizes)))
    assert all(tasks)
    loads = [sum(sizes[number] for number in task) for task in tasks]
    # Who has the most would have had the last of it put elsewhere, if that were better.
    assert max(loads, default=0) - min(loads, default=0) <= max(sizes, default=0)
