"""Rows of the ledger joined on real tables: proven byte for byte, beside others who take records out, and killed."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from sinks.books.incidents import IncidentsTable
from sinks.books.ledger import Ledger, LedgerRows
from sinks.delta.delta_log import newest
from sinks.delta.kernel import KernelTable
from sinks.delta.spark_jobs import run_each
from sinks.healing.repair import Repair
from sinks.proof.proven_log import proven_log
from sinks.tables import LEDGER
from sinks.upkeep import ledger as upkeep
from sinks.upkeep import ledger_plan
from sinks.upkeep.ledger import Joined, LedgerJoin
from sinks.upkeep.retention import Keep, ReplicaRetention
from sinks.values.continuity import checksum_of
from sinks.values.ledger_row import LedgerRow
from sources.loss import Condition
from sources.offsets import LogId, Offset, Position
from tests.around import at_first
from tests.pipeline.edited_rows import edit_rows
from tests.sinks.accounts import completeness, incident, ledger_row
from tests.sinks.batches import held, ledger, opened, ranges
from tests.sinks.memory_master import BROKER_A, MemoryMaster, Rewriting
from tests.sinks.merged import merge_all
from tests.sinks.plain_session import make_plain
from tests.spans import span

OTHER = LogId("rocketmq", "broker-b")
SIZES = tuple(range(90, 130))
MASTER = MemoryMaster(SIZES)
ENDS = [sum(SIZES[:count]) for count in range(len(SIZES) + 1)]
LOG = b"".join(MASTER.raw(span(0, ENDS[-1]), committed=None))
LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replica of 40 records in ten commits. One file of the ledger has all rows, and one of another log."""
    folder = tmp_path_factory.mktemp("prepared")
    with pytest.MonkeyPatch.context() as patch:
        plain = make_plain(patch)
        replica = opened(plain, folder, MASTER)
        for count in range(0, 40, 4):
            replica(ranges(ENDS[count], ENDS[count + 4], split=1000))
        Ledger(plain, LEDGER.path(str(folder))).append_each({Position(OTHER, 0, Offset(9)): [ledger_row(0, 9)]})
        merge_all(KernelTable(plain, LEDGER.path(str(folder))), LEDGER)
    return folder


@pytest.fixture
def lake(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All of one hour whenever this runs. Five rows fit into one."""
    monkeypatch.setattr(ledger_plan, "HOUR_US", 1 << 60)
    monkeypatch.setattr(ledger_plan, "JOINED_BYTES", ENDS[40] - ENDS[20])
    return Path(shutil.copytree(prepared, tmp_path, dirs_exist_ok=True))


def join(plain: SparkSession, lake: Path, before: datetime = LATER) -> Joined:
    return LedgerJoin(plain, str(lake), [MASTER], before).run()


def rows(lake: Path) -> list[tuple[int, int]]:
    """By the numbers of the records."""
    found = [row for row in ledger(lake) if row["log_id"] == str(BROKER_A) and row["deleted_at"] is None]
    return [(ENDS.index(row["start"]), ENDS.index(row["end"])) for row in found]


def meanwhile(patch: pytest.MonkeyPatch, act: Callable[[], object], after: Callable[..., Any] = run_each) -> None:
    """Do `act` after the first `after`: when the first join's tasks have read, and nothing is committed."""
    at_first(patch, upkeep, after.__name__, act, after=True)


def test_the_ledger_says_the_same_in_fewer_rows(plain: SparkSession, lake: Path) -> None:
    """And what is young stays; a dry run tells what becomes of the rest."""
    before = proven_log(plain, str(lake), BROKER_A, to="verify").proven
    was, planned = completeness(lake, BROKER_A), LedgerJoin(plain, str(lake), [MASTER], LATER).plan()
    assert join(plain, lake, datetime.now(UTC) - timedelta(hours=2)) == Joined()
    assert join(plain, lake) == planned == Joined(10, 2, ENDS[40])
    assert completeness(lake, BROKER_A) == was
    after = proven_log(plain, str(lake), BROKER_A, to="verify").proven
    for row, old in zip(after, (before[:5], before[5:]), strict=True):
        assert row == LedgerRow(
            start=old[0].start,
            end=old[-1].end,
            records=sum(one.records for one in old),
            bytes=sum(one.bytes for one in old),
            checksum=checksum_of(LOG[old[0].start : old[-1].end]),
            first_store_timestamp=old[0].first_store_timestamp,
            last_store_timestamp=old[-1].last_store_timestamp,
            committed_at=old[-1].committed_at,
            origin="joined",
        )
    assert join(plain, lake) == Joined()


def test_beside_a_job_it_is_done_in_pieces_and_ends_between_two(
    plain: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_TASK_BYTES", 1)
    pace = Mock(side_effect=[None, InterruptedError])
    with pytest.raises(InterruptedError):
        LedgerJoin(plain, str(lake), [MASTER], LATER, pace=pace).run()
    assert rows(lake)[0] == (0, 20)
    assert len(rows(lake)) == 6


@pytest.mark.parametrize("is_readable", [True, False], ids=["another row", "an unreadable file"])
def test_a_damaged_range_is_left_and_told(plain: SparkSession, lake: Path, is_readable: bool) -> None:
    if is_readable:
        edit_rows(lake / "log", {ENDS[9]: lambda row: [{**row, "size": row["size"] - 1}]})
    else:
        (file,) = (lake / "log").glob(f"part-{ENDS[8]:020d}-*")
        file.write_bytes(b"PAR1")
    found = [(one.found.claim.range, one.found.verdict.value) for one in join(plain, lake).doubtful]
    assert found == [(span(ENDS[8], ENDS[12]), "replica_damaged" if is_readable else "replica_unreadable")]
    IncidentsTable(plain, str(lake), BROKER_A).record(0, [incident(ENDS[8], ENDS[12], Condition.REPLICA_DAMAGED)])
    assert join(plain, lake).doubtful == []
    assert rows(lake) == [(0, 8), (8, 12), (12, 20), (20, 40)]


def test_a_retention_that_came_meanwhile_has_its_bound(
    plain: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join that read the rows before is refused, and begins again with the bound. A plan that is older waits."""
    retention, keep = ReplicaRetention(plain, str(lake), BROKER_A), Keep(size_bytes=ENDS[40] - ENDS[24])
    plan, older = retention.plan(Keep(size_bytes=ENDS[40] - ENDS[8]), LATER), retention.plan(keep, LATER)
    meanwhile(monkeypatch, lambda: LedgerRows(plain, str(lake), BROKER_A).keep_bounds(plan.out.end))
    assert join(plain, lake).into == 3
    assert rows(lake) == [(0, 8), (8, 28), (28, 40)]
    assert [retention.apply(one, LATER) for one in (older, plan)] == [0, 8]
    assert rows(lake) == [(8, 28), (28, 40)]
    assert completeness(lake, BROKER_A).whole[0].range == span(ENDS[8], ENDS[40])


@pytest.mark.parametrize("moment", ["before", "meanwhile"])
def test_a_repair_goes_back_into_the_middle_of_a_joined_row(
    plain: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """To the very record, and what is left of the row is a row."""
    repair = Repair(plain, str(lake), Rewriting(SIZES, since=ENDS[26])).run
    if moment == "meanwhile":
        meanwhile(monkeypatch, repair)
    assert join(plain, lake).into == (2 if moment == "before" else 0)
    if moment == "before":
        repair()
    assert held(plain, lake).offset == ENDS[26]
    assert completeness(lake, BROKER_A).whole[0].range == span(0, ENDS[26])
    join(plain, lake)
    assert completeness(lake, BROKER_A).whole[0].range == span(0, ENDS[26])


def test_a_repair_between_the_reading_of_the_two_tables_is_no_damage(
    plain: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger's rows are those from before it, the records those that the log has had since."""
    other = MemoryMaster((*SIZES[:26], 60, *SIZES[27:39], SIZES[26] - 60 + SIZES[39]))

    def repaired() -> None:
        Repair(plain, str(lake), other).run()
        opened(plain, lake, other)(ranges(ENDS[26], ENDS[40]))

    meanwhile(monkeypatch, repaired, after=newest)
    assert join(plain, lake) == Joined()
    assert join(plain, lake).doubtful == []
    assert completeness(lake, BROKER_A).whole[0].range == span(0, ENDS[40])


def test_the_next_run_does_what_a_killed_one_did_not(
    plain: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the files, before the commit. The stream goes on during the next run."""
    with monkeypatch.context() as here:
        here.setattr(KernelTable, "replace", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            join(plain, lake)
    assert len(rows(lake)) == 10
    meanwhile(monkeypatch, lambda: opened(plain, lake, MemoryMaster((*SIZES, 77)))(ranges(ENDS[40], ENDS[40] + 77)))
    assert join(plain, lake).into == 2
    assert [row["start"] for row in ledger(lake)] == [0, ENDS[20], ENDS[40], 0]
