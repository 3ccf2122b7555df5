"""Rows taken out of table log, file by file, in the one commit that moves the log; and who may come between."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sinks.delta.data_file import DataFile
from sinks.delta.files import FileWriter, new_name
from sinks.delta.kernel import KernelTable
from sinks.state.fence import this_writer
from sinks.state.holes import Holes, TakenOut
from sinks.state.log_state import LogState, PendingRepair
from sinks.state.log_table import Held
from sinks.tables import LOG
from sinks.warehouse import ensure_tables
from sources.errors import RepairPending, ReplicaError, TakenOver
from sources.offsets import LogId, Offset, OffsetRange
from tests.sinks.memory_master import BROKER_A
from tests.sinks.merged import merge_all
from tests.sinks.one_log import OneLog
from tests.sinks.test_files import table_rows
from tests.spans import span

BROKER_B = LogId("rocketmq", "broker-b")
FROM_12 = OffsetRange(Offset(1200), Offset(2**63 - 1))


def rows_of(log_id: LogId, first: int, last: int) -> pa.RecordBatch:
    """Records `first` to `last` of a log of records of 100 bytes."""
    rows = table_rows(first, last)
    return rows.set_column(0, "log_id", pa.array([str(log_id)] * rows.num_rows))


def file_of(path: str, *batches: pa.RecordBatch) -> DataFile:
    with FileWriter(LOG, path, new_name(Offset(0))) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.finish()


def numbers(path: str, log_id: LogId) -> list[int]:
    """The records of a log that are in the table, by their number. Read by delta-rs."""
    rows = DeltaTable(path).to_pyarrow_table(columns=["log_id", "offset"]).to_pylist()
    return sorted(row["offset"] // 100 for row in rows if row["log_id"] == str(log_id))


@pytest.fixture
def path(plain: SparkSession, tmp_path: Path) -> str:
    ensure_tables(plain, str(tmp_path))
    return LOG.path(str(tmp_path))


@pytest.fixture
def table(plain: SparkSession, path: str) -> OneLog:
    """Log A at 2500, in files that lie below 1200, across it, above it, and one that both logs share."""
    table = OneLog(plain, path, BROKER_A)
    state = table.claim(this_writer()).moved_to(Offset(2500), first=Offset(0), ledger=())
    files = [
        file_of(path, rows_of(BROKER_A, 0, 8)),
        file_of(path, rows_of(BROKER_A, 8, 13), rows_of(BROKER_A, 13, 16)),
        file_of(path, rows_of(BROKER_A, 16, 20)),
        file_of(path, rows_of(BROKER_B, 0, 14), rows_of(BROKER_A, 20, 25)),
        file_of(path, rows_of(BROKER_B, 14, 25)),
    ]
    table.commit(table.read(), state, files)
    return table


def back_to_12(held: Held) -> LogState:
    assert held.state is not None
    return replace(held.state, epoch=1, offset=Offset(1200), branched_at=Offset(1200), commit=uuid.uuid4().hex)


def below_12(holes: Holes) -> Holes:
    return holes.below(Offset(1200))


def test_a_cut_takes_the_rows_and_moves_the_log_at_once(path: str, table: OneLog) -> None:
    held, before = table.read(), set(DeltaTable(path).file_uris())
    after = back_to_12(held)
    table.cut(held, after, FROM_12, below_12)
    assert len(before & set(DeltaTable(path).file_uris())) == 2  # those without such rows
    assert DeltaTable(path).version() == held.snapshot.version + 1
    assert numbers(path, BROKER_A) == list(range(12))
    assert numbers(path, BROKER_B) == list(range(25))
    now = table.read()
    assert now.state == after
    assert now.snapshot.transaction_version("logtwin/rocketmq/broker-a@1") == 1200
    going_on = after.moved_to(Offset(1300), first=Offset(1200), ledger=())
    table.commit(now, going_on, [file_of(path, rows_of(BROKER_A, 12, 13))])
    assert numbers(path, BROKER_A) == list(range(13))


def other_log_commits(plain: SparkSession, path: str) -> None:
    other = OneLog(plain, path, BROKER_B)
    state = other.claim(this_writer()).moved_to(Offset(100), first=Offset(0), ledger=())
    other.commit(other.read(), state, [])


def files_are_merged(plain: SparkSession, path: str) -> None:
    merge_all(KernelTable(plain, path), LOG)


@pytest.mark.parametrize("interfere", [other_log_commits, files_are_merged])
def test_others_may_come_between(
    plain: SparkSession, path: str, table: OneLog, interfere: Callable[[SparkSession, str], None]
) -> None:
    held = table.read()
    interfere(plain, path)
    table.cut(held, back_to_12(held), FROM_12, below_12)
    assert numbers(path, BROKER_A) == list(range(12))
    assert numbers(path, BROKER_B) == list(range(25))


def test_a_job_that_has_claimed_the_log_meanwhile_stops_the_cut(plain: SparkSession, path: str, table: OneLog) -> None:
    held = table.read()
    OneLog(plain, path, BROKER_A).claim(this_writer())
    with pytest.raises(TakenOver):
        table.cut(held, back_to_12(held), FROM_12, below_12)
    with pytest.raises(TakenOver):
        table.mark(held, back_to_12(held))
    assert numbers(path, BROKER_A) == list(range(25))


LONG, ITS_TWIN = (LogId("rocketmq", "a" * 40 + end) for end in "bc")


@pytest.mark.parametrize("is_merged", [False, True])
def test_ids_that_begin_alike_are_told_apart(plain: SparkSession, path: str, is_merged: bool) -> None:
    """By statistics where logtwin wrote the file; Delta's own are cut, and there the rows say it."""
    table = OneLog(plain, path, LONG)
    state = table.claim(this_writer()).moved_to(Offset(2500), first=Offset(0), ledger=())
    files = [file_of(path, rows_of(one, *part)) for one in (LONG, ITS_TWIN) for part in ((0, 12), (12, 25))]
    table.commit(table.read(), state, files)
    if is_merged:
        files_are_merged(plain, path)
    else:
        (Path(path) / files[1].name).unlink()  # what it would have to read: all of it goes, and nobody looks
        (Path(path) / files[3].name).rename(Path(path) / "kept")
    held = table.read()
    table.cut(held, back_to_12(held), FROM_12, below_12)
    if not is_merged:
        (Path(path) / "kept").rename(Path(path) / files[3].name)
    assert numbers(path, LONG) == list(range(12))
    assert numbers(path, ITS_TWIN) == list(range(25))


def test_damage_of_two_logs_is_taken_out_of_both_while_neither_has_moved(
    plain: SparkSession, path: str, table: OneLog
) -> None:
    other, held = OneLog(plain, path, BROKER_B), table.read()
    theirs = other.claim(this_writer()).moved_to(Offset(2500), first=Offset(0), ledger=())
    other.commit(other.read(), theirs)
    mine = replace(table.state(), commit="taken out")
    of_mine, of_theirs = TakenOut(BROKER_A, 0, (span(300, 500),)), TakenOut(BROKER_B, 0, (span(1000, 1200),))
    table.take_out(held, mine, [of_mine, of_theirs], [])
    assert (numbers(path, BROKER_A), numbers(path, BROKER_B)) == (
        [*range(3), *range(5, 25)],
        [*range(10), *range(12, 25)],
    )
    for log, state, out in ((table, mine, of_mine), (other, theirs, of_theirs)):
        now = log.read()
        assert (now.state, now.holes.ranges, now.holes.taken_out) == (state, out.ranges, out.ranges)
    for epoch in (-1, 1):
        with pytest.raises(ReplicaError, match="the log went back") as caught:
            table.take_out(table.read(), mine, [replace(of_theirs, epoch=epoch)], [])
        assert (caught.value.log, caught.value.expected, caught.value.found) == (str(BROKER_B), f"epoch {epoch}", "0")
    other.mark(other.read(), replace(theirs, commit="marked", repair=PendingRepair(to=Offset(0), epoch=1)))
    with pytest.raises(RepairPending):
        table.take_out(table.read(), mine, [of_theirs], [])
    assert table.read().state == mine
