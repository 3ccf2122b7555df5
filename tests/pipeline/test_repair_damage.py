"""Damage of the replica itself: taken out, not gone back for."""

from __future__ import annotations

import errno
from types import ModuleType
from typing import NoReturn

import pytest

from sinks.proof import stored
from sinks.state import rewrite
from sinks.values.incident import State
from sources.errors import StorageUnreachable
from sources.loss import Condition
from sources.offsets import Offset, OffsetRange
from tests.pipeline.edited_rows import edit_rows
from tests.pipeline.repair_bench import Bench, newest_file, spoil

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.mark.parametrize("module", [stored, pytest.param(rewrite, marks=pytest.mark.nightly)])
def test_a_file_that_cannot_be_reached_just_now_is_not_taken_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    before, end = bench.rows("log"), bench.log.end
    spoil(newest_file(bench))
    bench.found(Condition.REPLICA_DAMAGED, end - 10, end)

    def unreachable(folder: str, name: str) -> NoReturn:
        raise OSError(errno.EIO, f"{folder}/{name}")

    with monkeypatch.context() as away:
        away.setattr(module, "open_parquet", unreachable)
        with pytest.raises(StorageUnreachable):
            bench.repair()
    assert bench.holes() == ()
    bench.repair()
    assert bench.rows("log") == [row for row in before if row["offset"] < bench.holes()[0].start]


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_damaged_file_of_the_replica_becomes_a_hole(bench: Bench, is_gone: bool) -> None:
    before, end, ledger = bench.rows("log"), bench.log.end, bench.rows("ledger")
    lost = ledger[-1]
    file = newest_file(bench)
    file.unlink() if is_gone else spoil(file)
    bench.found(Condition.REPLICA_DAMAGED, end - 10, end)
    assert bench.look().taken_out == (OffsetRange(lost["start"], lost["end"]),)
    done = bench.repair()
    assert done.taken_out == done.missing == bench.holes() == (OffsetRange(lost["start"], lost["end"]),)
    assert bench.rows("log") == [row for row in before if row["offset"] < lost["start"]]
    assert bench.rows("ledger") == ledger[:-1]
    assert (bench.state().epoch, bench.state().offset, bench.state().repair) == (0, end, None)
    told = [(row.found.range, row.state) for row in bench.incidents().all()]
    assert told == [(bench.holes()[0], State.OPEN), (OffsetRange(Offset(end - 10), end), State.OPEN)]
    again = bench.repair()
    assert (again.taken_out, again.missing) == ((), done.missing)


def test_damaged_rows_that_can_be_read_are_kept(bench: Bench) -> None:
    """A row that is another one, in a file that is sound: as a bit that flipped before it was written."""
    before, lost = bench.rows("log"), bench.rows("ledger")[1]
    edit_rows(bench.lake / "log", {lost["start"]: lambda row: [{**row, "flag": 7}]})
    bench.found(Condition.REPLICA_DAMAGED, lost["start"], lost["start"] + 1)
    bench.repair()
    gone = [row["offset"] for row in before if lost["start"] <= row["offset"] < lost["end"]]
    assert bench.offsets("removed") == gone
    assert bench.offsets("log") == [row["offset"] for row in before if row["offset"] not in gone]


def test_going_back_passes_a_file_that_cannot_be_read(bench: Bench) -> None:
    """Nobody has found it before: the rows cannot be kept, and would have gone anyway."""
    before, lost = bench.rows("log"), bench.rows("ledger")[-1]
    common = bench.log.rewrite_from_the_middle()
    newest_file(bench).write_bytes(b"no Parquet at all")
    done = bench.repair()
    assert done.back is not None
    assert (done.back.found.common, done.position, done.missing, bench.holes()) == (common, common, (), ())
    assert done.taken_out == (OffsetRange(lost["start"], lost["end"]),)
    assert bench.rows("log") == [row for row in before if row["offset"] < common]
    assert bench.offsets("removed") == [row["offset"] for row in before if common <= row["offset"] < lost["start"]]
    assert bench.rows("ledger")[-1]["end"] == common
