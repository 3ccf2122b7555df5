"""Retention of the replica: what goes, what stays, and what a kill in between leaves."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sinks.delta.kernel import KernelTable
from sinks.healing.hole_filler import HoleFiller
from sinks.proof.completeness import Reason
from sinks.state.log_table import LogTable
from sinks.tables import LOG
from sinks.upkeep.retention import DeletionPlan, Keep, ReplicaRetention, boundary
from sources.errors import ReplicaError
from sources.offsets import Offset, OffsetRange
from tests.around import at_first
from tests.sinks.accounts import completeness
from tests.sinks.batches import held, ledger, offsets, opened, ranges
from tests.sinks.memory_master import BROKER_A, FIRST_STORED, MemoryMaster

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
NOW_US = int(NOW.timestamp() * 1_000_000)


def ages(*days: float | None) -> pa.Table:
    """Ranges of 100 bytes each, whose newest message was stored so many days ago."""
    stored = [None if age is None else int((NOW - age * DAY).timestamp() * 1_000_000) for age in days]
    return ledger_of(stored, committed=[NOW_US] * len(days))


def ledger_of(stored: list[int | None], committed: list[int], ids: int = 1, records: int = 0) -> pa.Table:
    """As of a ledger, of 100 bytes each; `ids` times as many offsets. Without a time there are `records`."""
    ends = [(at + 1) * 100 * ids for at in range(len(stored))]
    columns = {
        "end": ends,
        "bytes": [100] * len(stored),
        "last_store_timestamp": stored,
        "committed_at": committed,
        "records": [records if at is None else 10 for at in stored],
    }
    return pa.table(columns, schema=pa.schema([(name, pa.int64()) for name in columns]))


OLD_US = NOW_US - 9 * 86_400_000_000
COMMITTED = [NOW_US - age * 86_400_000_000 for age in (9, 8, 1, 1)]
WEEK = Keep(age=7 * DAY)


@pytest.mark.parametrize(
    ("table", "keep", "below"),
    [
        # what is older goes, from the front only: the master's clock may go back
        (ages(9, 8, 7.5, 6.5, 1), WEEK, 300),
        (ages(9, 6, 9, 9, 1), WEEK, 100),
        (ages(6, 5, 4), WEEK, None),
        (ages(7, 1), WEEK, None),  # exactly that old
        # a range without a message goes with what is around it
        (ages(None, 9, None, 1), WEEK, 300),
        (ages(9, 1, None, 1), WEEK, 100),
        # records without a valid time are as old as their commit, whatever is around them
        (ledger_of([None, OLD_US, None, None], COMMITTED, records=10), WEEK, 200),
        (ledger_of([None, OLD_US, None, None], [NOW_US] * 4, records=10), WEEK, None),
        (ledger_of([OLD_US, OLD_US, None, NOW_US], [NOW_US] * 4, records=10), WEEK, 200),
        # so is a range, where the master has no time at all
        (ledger_of([None] * 4, COMMITTED), WEEK, 200),
        (ledger_of([None] * 4, [NOW_US] * 4), WEEK, None),
        # what exceeds the size goes, and at least the size stays: of bytes, whatever offsets count
        (ages(1, 1, 1, 1, 1), Keep(size_bytes=300), 200),
        (ages(1, 1, 1, 1, 1), Keep(size_bytes=299), 200),
        (ages(1, 1, 1, 1, 1), Keep(size_bytes=301), 100),
        (ages(1, 1), Keep(size_bytes=200), None),
        (ledger_of([None] * 5, [NOW_US] * 5, ids=10**6), Keep(size_bytes=300), 2 * 100 * 10**6),
        # what exceeds either
        (ages(9, 9, 1, 1, 1), Keep(age=7 * DAY, size_bytes=200), 300),
        (ages(9, 9, 9, 1, 1), Keep(age=7 * DAY, size_bytes=400), 300),
        # the newest range stays
        (ages(9, 9), WEEK, 100),
        (ages(9), WEEK, None),
        (ages(1, 1), Keep(size_bytes=0), 100),
        (ages(), WEEK, None),
    ],
)
def test_what_goes(table: pa.Table, keep: Keep, below: int | None) -> None:
    assert boundary(table, keep, NOW) == below


SIZES = tuple(range(90, 130))
MASTER = MemoryMaster(SIZES)
ENDS = [sum(SIZES[:count]) for count in range(len(SIZES) + 1)]
DAY_LATER = FIRST_STORED + timedelta(days=1)


@pytest.fixture
def warehouse(plain: SparkSession, tmp_path: Path) -> Path:
    """A replica of 40 records in four commits of ten; a message is stored every 250 ms."""
    replica = opened(plain, tmp_path, MASTER)
    for count in range(0, 40, 10):
        replica(ranges(ENDS[count], ENDS[count + 10]))
    return tmp_path


def keep_since(record: int) -> Keep:
    """What keeps the records that were stored at or after `record`, as of a day later."""
    return Keep(age=DAY_LATER - (FIRST_STORED + timedelta(milliseconds=250 * record)))


def starts(first: int = 0) -> list[int]:
    return ENDS[first:-1]


def deleted(warehouse: Path) -> list[bool]:
    return [row["deleted_at"] is not None for row in ledger(warehouse)]


def test_old_records_go_and_the_ledger_says_so(plain: SparkSession, warehouse: Path) -> None:
    before = ledger(warehouse)
    retention = ReplicaRetention(plain, str(warehouse), BROKER_A)
    plan = retention.plan(keep_since(25), DAY_LATER)
    assert plan == DeletionPlan(OffsetRange(Offset(0), Offset(ENDS[20])), ENDS[40], ENDS[20])
    assert offsets(warehouse) == starts()
    assert retention.apply(plan, DAY_LATER) == 20
    assert offsets(warehouse) == starts(20)
    assert held(plain, warehouse).holes.ranges == (OffsetRange(Offset(0), Offset(ENDS[20])),)
    assert deleted(warehouse) == [True, True, False, False]
    after = ledger(warehouse)
    assert [{**row, "deleted_at": None} for row in after] == before
    assert after[0]["deleted_at"] == DAY_LATER
    again = retention.plan(keep_since(25), DAY_LATER)
    assert again.out.is_empty
    assert again.held_bytes == ENDS[40] - ENDS[20]
    version = DeltaTable(LOG.path(str(warehouse))).version()
    assert retention.apply(again, DAY_LATER) == 0
    assert retention.settle(DAY_LATER) == 0
    assert DeltaTable(LOG.path(str(warehouse))).version() == version


def test_what_a_kill_left_undone_is_done_later(plain: SparkSession, warehouse: Path) -> None:
    """Killed between the two commits: the records are gone, the ledger does not know."""
    LogTable(plain, LOG.path(str(warehouse)), BROKER_A).forget(Offset(ENDS[20]))
    assert deleted(warehouse) == [False] * 4
    retention = ReplicaRetention(plain, str(warehouse), BROKER_A)
    assert retention.plan(Keep(), DAY_LATER).out.is_empty
    assert retention.settle(DAY_LATER) == 2
    assert deleted(warehouse) == [True, True, False, False]
    assert retention.settle(DAY_LATER) == 0


@pytest.mark.job
@pytest.mark.parametrize("after", ["the log", "the ledger"])
@pytest.mark.parametrize("is_marked", [True, False], ids=["marked", "not yet marked"])
def test_what_a_fill_brings_back_meanwhile_stays(
    plain: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch, after: str, is_marked: bool
) -> None:
    """A fill comes after the first look at one of the two tables, while rows that retention deleted are told so."""
    retention = ReplicaRetention(plain, str(warehouse), BROKER_A)
    LogTable(plain, LOG.path(str(warehouse)), BROKER_A).forget(Offset(ENDS[20]))
    if is_marked:
        retention.settle(DAY_LATER)
    filled = at_first(
        monkeypatch, KernelTable, "existing", lambda: fill(plain, warehouse, 0, ENDS[20]), after=True,
        when=lambda one, *_, **__: after.endswith(Path(one.path).name),
    )  # fmt: skip
    retention.settle(DAY_LATER)
    assert filled == [True]
    assert offsets(warehouse) == starts()
    assert completeness(warehouse, BROKER_A).missing == ()
    assert sum(deleted(warehouse)) == 2


def fill(plain: SparkSession, warehouse: Path, start: int, end: int) -> None:
    """One batch of a backfill, by the master's own records."""
    filler = HoleFiller(plain, str(warehouse), BROKER_A)
    assert filler.fill(filler.look(), OffsetRange(Offset(start), Offset(end)), MASTER, None) is not None


def test_a_fill_tells_the_ledger_first_what_a_killed_retention_deleted(plain: SparkSession, warehouse: Path) -> None:
    """Nobody could tell its rows from the old ones later."""
    LogTable(plain, LOG.path(str(warehouse)), BROKER_A).forget(Offset(ENDS[20]))
    fill(plain, warehouse, 0, ENDS[10])
    assert ReplicaRetention(plain, str(warehouse), BROKER_A).settle(DAY_LATER) == 0
    assert [(one.range.start, one.range.end, one.reason) for one in completeness(warehouse, BROKER_A).missing] == [
        (ENDS[10], ENDS[20], Reason.RETENTION)
    ]


def test_a_file_that_straddles_the_boundary_is_rewritten(plain: SparkSession, warehouse: Path) -> None:
    table = LogTable(plain, LOG.path(str(warehouse)), BROKER_A)
    assert table.forget(Offset(ENDS[13])) == 13
    assert offsets(warehouse) == starts(13)
    assert table.forget(Offset(ENDS[13])) == 0
    assert table.forget(Offset(ENDS[15])) == 2
    assert offsets(warehouse) == starts(15)
    assert held(plain, warehouse).holes.ranges == (OffsetRange(Offset(0), Offset(ENDS[15])),)


def test_nothing_at_the_position_is_forgotten(plain: SparkSession, warehouse: Path) -> None:
    with pytest.raises(ReplicaError, match="at or above the position"):
        LogTable(plain, LOG.path(str(warehouse)), BROKER_A).forget(Offset(ENDS[40]))
    assert offsets(warehouse) == starts()


def test_a_log_without_data_keeps_what_it_has(plain: SparkSession, tmp_path: Path) -> None:
    opened(plain, tmp_path, MASTER)
    retention = ReplicaRetention(plain, str(tmp_path), BROKER_A)
    assert retention.plan(Keep(age=DAY, size_bytes=0), DAY_LATER).out.is_empty
    assert retention.settle(DAY_LATER) == 0
