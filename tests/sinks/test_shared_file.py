"""The file that small splits of a task share, and what goes there or into files of its own."""

import threading
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinks.batch import shared_file
from sinks.batch.shared_file import HeldRows, SharedFile, StretchFile
from sinks.delta.data_file import DataFile
from sinks.delta.files import FileWriter
from sinks.tables import KAFKA_LOG
from sources.errors import CoverageError
from sources.offsets import Offset, OffsetRange
from tests.sinks.at_once import at_once
from tests.sinks.memory_partition import MemoryPartition

END = 40
LOGS = [MemoryPartition(number, tuple(range(END)), END) for number in range(6)]


def rows(number: int, start: int, end: int) -> pa.RecordBatch:
    return LOGS[number].chunk(OffsetRange(Offset(start), Offset(end))).records


def held(number: int, *edges: int) -> HeldRows:
    """Of partition `number`, a batch between each two of `edges`."""
    found = HeldRows(LOGS[number].log_id, 0)
    for start, end in pairwise(edges):
        found.add(rows(number, start, end))
    return found


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def shared(folder: Path) -> SharedFile:
    return SharedFile(KAFKA_LOG, str(folder))


def table_of(folder: Path, file: DataFile | None) -> list[tuple[int, int]]:
    """Partition and offset of each row, in the order of the file."""
    assert file is not None
    found = pq.read_table(folder / file.name, columns=["partition", "offset"]).to_pylist()
    assert file.records == len(found)
    return [(row["partition"], row["offset"]) for row in found]


def offsets(number: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(number, offset) for offset in range(start, end)]


def test_what_threads_add_side_by_side_is_not_mixed(tmp_path: Path) -> None:
    with shared(tmp_path) as file:
        adding = [partial(file.add, held(number, *range(0, END + 1, 2)), Offset(0)) for number in range(len(LOGS))]
        futures = at_once(adding)
        file.finish()
    found = table_of(tmp_path, futures[0].result(timeout=0))
    runs = [list(run) for _, run in groupby(found, key=lambda row: row[0])]
    assert sorted(runs) == [offsets(number, 0, END) for number in range(len(LOGS))]


@pytest.mark.parametrize(("most_bytes", "groups"), [(shared_file.HELD_BYTES, 1), (0, 3)])
def test_small_stretches_are_one_row_group_until_they_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int, groups: int
) -> None:
    monkeypatch.setattr(shared_file, "HELD_BYTES", most_bytes)
    with shared(tmp_path) as file:
        futures = [file.add(held(number, 0, 5, END), Offset(0)) for number in range(3)]
        file.finish()
    (path,) = files(tmp_path)
    assert pq.ParquetFile(path).metadata.num_row_groups == groups
    assert table_of(tmp_path, futures[0].result(timeout=0)) == [row for at in range(3) for row in offsets(at, 0, END)]


class Losing(FileWriter):
    """Writes all but the first row of each batch."""

    def write(self, batch: pa.RecordBatch) -> None:
        super().write(batch.slice(1))


def test_a_file_that_holds_other_rows_than_were_added_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_file, "FileWriter", Losing)
    with pytest.raises(CoverageError) as caught, shared(tmp_path) as file:
        file.add(held(0, 0, 5), Offset(0))
        file.finish()
    assert (caught.value.expected, caught.value.found) == ("5 records", "4")
    assert files(tmp_path) == []


class Stretches:
    """Stretches beside each other, on their way into one shared file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = shared(folder)
        self.own = ExitStack()

    def one(self, start: int = 0, *, large: bool = False) -> StretchFile:
        rows_of = HeldRows(LOGS[0].log_id, 0)
        return StretchFile(self.file, rows_of, Offset(start), self.own, threading.Semaphore(1), large=large)

    def finished(self, *futures: Future[DataFile | None]) -> list[DataFile | None]:
        self.file.finish()
        return [future.result(timeout=0) for future in futures]

    def check_both(self, large: StretchFile, small: StretchFile, start: int, written: int) -> None:
        """Where `large` has rows from `start` to `written`, and both get more."""
        small.write(rows(1, 0, 3))
        large.write(rows(0, written, 30))
        for one in (large, small):
            one.end()
        found = self.finished(large.handed_over(), small.handed_over())
        assert [table_of(self.folder, file) for file in found] == [offsets(0, start, 30), offsets(1, 0, 3)]


@pytest.fixture
def stretches(tmp_path: Path) -> Any:
    made = Stretches(tmp_path)
    with made.own, made.file:
        yield made


def test_a_small_stretch_is_nowhere_until_it_is_handed_over(stretches: Stretches) -> None:
    given_up, kept = stretches.one(), stretches.one(3)
    for one in (given_up, kept):
        one.write(rows(0, 3, 9))
        one.write(rows(0, 9, 10))
        one.end()
    assert files(stretches.folder) == []
    (file,) = stretches.finished(kept.handed_over())
    assert table_of(stretches.folder, file) == offsets(0, 3, 10)
    assert len(files(stretches.folder)) == 1


def test_a_stretch_that_is_large_has_a_file_of_its_own_at_once(stretches: Stretches) -> None:
    large, small = stretches.one(5, large=True), stretches.one()
    large.write(rows(0, 5, 9))
    assert [path.name[:25] for path in files(stretches.folder)] == ["part-00000000000000000005"]
    stretches.check_both(large, small, 5, 9)


def test_a_stretch_that_grows_large_moves_into_a_file_of_its_own(
    stretches: Stretches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_file, "HELD_BYTES", rows(0, 0, 10).nbytes)
    growing, small = stretches.one(), stretches.one()
    growing.write(rows(0, 0, 10))
    assert files(stretches.folder) == []
    growing.write(rows(0, 10, 12))
    assert len(files(stretches.folder)) == 1
    stretches.check_both(growing, small, 0, 12)


def test_a_file_of_its_own_that_holds_other_rows_is_found(
    stretches: Stretches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_file, "FileWriter", Losing)
    large = stretches.one(5, large=True)
    large.write(rows(0, 5, 9))
    large.end()
    with pytest.raises(CoverageError) as caught:
        large.handed_over()
    assert (caught.value.offset, caught.value.expected, caught.value.found) == (5, "4 records", "3")
