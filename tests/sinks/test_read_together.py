"""Logs that one reader reads together in a task: into one file, each with its own errors and its own link."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import sinks.batch.tasks
from sinks.batch.proof import SplitReport
from sinks.batch.receiver import LogWriter
from sinks.batch.tasks import write_splits
from sinks.values.continuity import Link
from sources.errors import ChecksumMismatch, CoverageError, LogtwinError, MasterUnreachable, Rewritten
from sources.offsets import LogId, OffsetRange
from sources.reading import Come, Ended, WantedSplit
from tests.sinks.memory_master import Failing, HoledInside, MemoryMaster, Overtaken, Rewriting
from tests.sinks.test_tasks import AWAY, SIZES, files, link_at, splits
from tests.spans import span


@dataclass(frozen=True, slots=True)
class Together:
    """Reads all logs that have an equal one, a piece of each in turn. Fails, or just stops, once each has had `turns`.

    `asked` are the ids of what was read at once.
    """

    name: str = "cluster"
    turns: int = 100
    error: Exception | None = None
    asked: list[list[str]] = field(default_factory=list, compare=False)

    def read(self, wanted: Sequence[WantedSplit]) -> Iterator[Come]:
        self.asked.append([str(one.log.log_id) for one in wanted])
        left = {
            number: one.log.read(one.owned, committed=one.committed, boundary=one.boundary)
            for number, one in enumerate(wanted)
        }
        for _ in range(self.turns):
            for number, pieces in list(left.items()):
                try:
                    piece = next(pieces, None)
                except LogtwinError as error:
                    del left[number]
                    yield number, Ended(error)
                else:
                    if piece is None:
                        del left[number]
                    yield number, Ended() if piece is None else piece
        if self.error is not None:
            raise self.error


@dataclass(frozen=True, slots=True)
class Shared:
    """A log of a cluster: the master, and what reads it."""

    master: MemoryMaster
    reader: Together

    @property
    def small_reader(self) -> Together:
        return self.reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.master, name)


def read_together(
    warehouse: Path, masters: Sequence[MemoryMaster], reader: Together, links: Mapping[str, Link] | None = None
) -> list[SplitReport]:
    given = []
    for one in masters:
        link = (links or {}).get(str(one.log_id))
        log = LogWriter(Shared(one, reader), 0, None if link is None else link.end, link, str(warehouse))
        given += [(split, log) for split in splits((log.position or 0, 500), log_id=str(one.log_id))]
    return list(write_splits(given))


def named(name: str, kind: type[MemoryMaster] = MemoryMaster, **more: Any) -> MemoryMaster:
    return kind(SIZES, log_id=LogId("rocketmq", name), chunk_records=1, **more)


def ranges(report: SplitReport) -> list[OffsetRange]:
    return [piece.covered.range for piece in report.written]


def test_logs_of_one_reader_are_read_at_once_into_one_file(warehouse: Path) -> None:
    found = read_together(warehouse, [named(name) for name in "abc"], reader := Together())
    assert reader.asked == [["rocketmq/a", "rocketmq/b", "rocketmq/c"]]
    assert [(report.log_id, ranges(report), report.error) for report in found] == [
        (f"rocketmq/{name}", [span(0, 500)], None) for name in "abc"
    ]
    assert len(set().union(*(report.files for report in found))) == 1
    (path,) = (warehouse / "log").iterdir()
    rows = pq.read_table(path, columns=["log_id", "offset"]).to_pylist()
    assert [(row["log_id"], row["offset"]) for row in rows] == [
        (f"rocketmq/{name}", start) for name in "abc" for start in (0, 10, 100, 400, 405, 410)
    ]


def test_what_is_large_is_read_at_several_times(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks.batch.tasks, "AT_ONCE_BYTES", 1200)
    read_together(warehouse, [named(name) for name in "abcde"], reader := Together())
    assert sorted(reader.asked) == [[f"rocketmq/{name}" for name in names] for names in ("ab", "cd", "e")]


def test_the_error_of_one_log_leaves_the_others_as_they_are(warehouse: Path) -> None:
    bad = ChecksumMismatch("another body", offset=100)
    masters = [
        named("a"),
        named("damaged", Failing, at=100, error=bad),
        named("away", Failing, at=0, error=AWAY),
        named("holed", HoledInside, hole=100),
        named("z"),
    ]
    reports = read_together(warehouse, masters, Together())
    assert {one.log_id: (ranges(one), one.error and type(one.error)) for one in reports} == {
        "rocketmq/a": ([span(0, 500)], None),
        "rocketmq/damaged": ([span(0, 100)], ChecksumMismatch),
        "rocketmq/away": ([], MasterUnreachable),
        "rocketmq/holed": ([], CoverageError),
        "rocketmq/z": ([span(0, 500)], None),
    }
    assert all(str(one.error.log) == one.log_id for one in reports if one.error is not None)


@pytest.mark.parametrize("error", [KeyError("a defect"), None], ids=["it fails", "it just stops"])
def test_a_reader_that_fails_fails_what_it_had_not_ended(warehouse: Path, error: Exception | None) -> None:
    """All of one log has come by then: six records, and that there are no more."""
    few = MemoryMaster((500,), log_id=LogId("rocketmq", "few"))
    reports = read_together(warehouse, [few, named("many")], Together(turns=3, error=error))
    assert (ranges(reports[0]), reports[0].error) == ([span(0, 500)], None)
    assert type(reports[1].error) is LogtwinError
    assert reports[1].error.log == "rocketmq/many"
    assert len(files(warehouse)) == 1


def test_each_log_is_compared_with_its_own_link_and_read_without_it_if_it_is_gone(warehouse: Path) -> None:
    links = {f"rocketmq/{name}": link_at(10) for name in ("same", "other", "gone")}
    masters = [named("same"), named("other", Rewriting), named("gone", Overtaken, minimum=100), named("new")]
    same, other, gone, new = read_together(warehouse, masters, reader := Together(), links)
    assert (ranges(same), same.error) == ([span(100, 500)], None)
    assert type(other.error) is Rewritten
    assert (ranges(gone), gone.error) == ([span(100, 500)], None)
    assert ranges(new) == [span(0, 500)]
    assert reader.asked == [[f"rocketmq/{name}" for name in ("same", "other", "gone", "new")], ["rocketmq/gone"]]
