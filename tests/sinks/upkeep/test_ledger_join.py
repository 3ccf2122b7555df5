"""Rows of the ledger joined on real tables: proven byte for byte, beside others who take records out, and killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.inspect.coverage import read_accounts
from sinks.books.incidents import IncidentsTable
from sinks.books.ledger_rows import LedgerRows
from sinks.delta.kernel import KernelTable
from sinks.delta.spark_jobs import run_tasks
from sinks.healing.repair import Repair
from sinks.proof.completeness import Completeness
from sinks.proof.proven_log import proven_log
from sinks.proof.stored_log import StoredLog
from sinks.proof.verdicts import Verdict
from sinks.upkeep import ledger as upkeep
from sinks.upkeep import ledger_plan
from sinks.upkeep.ledger import Joined, LedgerJoin
from sinks.upkeep.retention import Keep, ReplicaRetention
from sinks.values.continuity import checksum_of
from sources.loss import Condition
from sources.offsets import OffsetRange
from tests.pipeline.edited_rows import edit_rows
from tests.sinks.accounts import incident
from tests.sinks.batches import held, ledger, opened, ranges
from tests.sinks.memory_master import BROKER_A, MemoryMaster, Rewriting
from tests.spans import span

SIZES = tuple(range(90, 130))
MASTER = MemoryMaster(SIZES)
ENDS = [sum(SIZES[:count]) for count in range(len(SIZES) + 1)]
LOG_BYTES = b"".join(MASTER.raw(span(0, ENDS[-1]), committed=None))
LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def lake(plain: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A replica of 40 records in ten commits, all in one hour whenever this runs. Five rows fit into one."""
    monkeypatch.setattr(ledger_plan, "HOUR_US", 1 << 60)
    monkeypatch.setattr(ledger_plan, "JOINED_BYTES", ENDS[40] - ENDS[20])
    replica = opened(plain, tmp_path, MASTER)
    for count in range(0, 40, 4):
        replica(ranges(ENDS[count], ENDS[count + 4], split=1000))
    return tmp_path


def join(plain: SparkSession, lake: Path, before: datetime = LATER) -> Joined:
    return LedgerJoin(plain, str(lake), [MASTER], before).run()


def rows(lake: Path) -> list[tuple[int, int]]:
    """By the numbers of the records."""
    return [(ENDS.index(row["start"]), ENDS.index(row["end"])) for row in ledger(lake) if row["deleted_at"] is None]


def completeness(lake: Path) -> Completeness:
    accounts = read_accounts(str(lake), BROKER_A)
    assert accounts is not None
    found = Completeness.of(accounts)
    assert found.problem(BROKER_A) is None
    return found


def test_the_ledger_says_the_same_in_fewer_rows(plain: SparkSession, lake: Path) -> None:
    """And what is young stays; a dry run tells what becomes of the rest."""
    before, was = ledger(lake), completeness(lake)
    assert join(plain, lake, datetime.now(UTC) - timedelta(hours=2)).into == 0
    planned = LedgerJoin(plain, str(lake), [MASTER], LATER).plan()
    assert ledger(lake) == before
    done = join(plain, lake)
    assert (done.rows, done.into, done.bytes, done.doubtful) == (10, 2, ENDS[40], [])
    assert planned == done
    after = ledger(lake)
    assert completeness(lake) == was
    assert [OffsetRange(row["start"], row["end"]) for row in after] == [span(0, ENDS[20]), span(ENDS[20], ENDS[40])]
    for row in after:
        old = [one for one in before if row["start"] <= one["start"] < row["end"]]
        assert row["checksum"] == checksum_of(LOG_BYTES[row["start"] : row["end"]])
        assert [row[name] for name in ("records", "bytes")] == [
            sum(one[name] for one in old) for name in ("records", "bytes")
        ]
        assert (row["first_store_timestamp"], row["last_store_timestamp"], row["committed_at"], row["origin"]) == (
            old[0]["first_store_timestamp"], old[-1]["last_store_timestamp"], old[-1]["committed_at"], "joined",
        )  # fmt: skip
    assert all(
        map(StoredLog(plain, str(lake), MASTER).is_whole, proven_log(plain, str(lake), BROKER_A, to="verify").proven)
    )
    assert join(plain, lake) == Joined()
    assert ledger(lake) == after


@pytest.mark.parametrize("is_readable", [True, False], ids=["another row", "an unreadable file"])
def test_a_damaged_range_is_left_and_told(plain: SparkSession, lake: Path, is_readable: bool) -> None:
    if is_readable:
        edit_rows(lake / "log", {ENDS[9]: lambda row: [{**row, "size": row["size"] - 1}]})
    else:
        files = KernelTable(plain, f"{lake}/log")
        (file,) = (one for one in files.files(files.existing(), {"log_id": str(BROKER_A)}) if _has(one.statistics(), 9))
        (lake / "log" / file.path).write_bytes(b"PAR1")
    done = join(plain, lake)
    assert [(one.found.claim.range, one.found.verdict) for one in done.doubtful] == [
        (span(ENDS[8], ENDS[12]), Verdict.REPLICA_DAMAGED if is_readable else Verdict.UNREADABLE)
    ]
    assert (8, 12) in rows(lake)
    assert done.into >= 2
    IncidentsTable(plain, str(lake), BROKER_A).record(0, [incident(ENDS[8], ENDS[12], Condition.REPLICA_DAMAGED)])
    assert join(plain, lake).doubtful == []
    assert rows(lake) == [(0, 8), (8, 12), (12, 20), (20, 40)]


def _has(statistics: dict[str, Any], record: int) -> bool:
    return bool(statistics["minValues"]["offset"] <= ENDS[record] <= statistics["maxValues"]["offset"])


def meanwhile(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do `act` while the first join's tasks have read, and nothing is committed."""
    run, acts = run_tasks, [act]

    def running(*given: Any, **named: Any) -> Sequence[Any]:
        made = run(*given, **named)
        if acts:
            acts.pop()()
        return made

    patch.setattr(upkeep, "run_tasks", running)


def test_a_retention_that_came_meanwhile_has_its_bound(
    plain: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join that read the rows before is refused, and begins again with the bound."""
    retention = ReplicaRetention(plain, str(lake), BROKER_A)
    plan = retention.plan(Keep(size_bytes=ENDS[40] - ENDS[8]), LATER)
    meanwhile(monkeypatch, lambda: LedgerRows(plain, str(lake), BROKER_A).keep_bounds(plan.out.end))
    assert join(plain, lake).into == 3
    assert rows(lake) == [(0, 8), (8, 28), (28, 40)]
    assert retention.apply(plan, LATER) == 8
    assert rows(lake) == [(8, 28), (28, 40)]
    assert completeness(lake).whole[0].range == span(ENDS[8], ENDS[40])


def test_a_retention_that_was_planned_before_a_join_waits_for_the_next_plan(plain: SparkSession, lake: Path) -> None:
    retention, keep = ReplicaRetention(plain, str(lake), BROKER_A), Keep(size_bytes=ENDS[40] - ENDS[24])
    plan = retention.plan(keep, LATER)
    join(plain, lake)
    assert retention.apply(plan, LATER) == 0
    assert retention.apply(retention.plan(keep, LATER), LATER) == 20
    assert rows(lake) == [(20, 40)]


@pytest.mark.parametrize("moment", ["before", "meanwhile"])
def test_a_repair_goes_back_into_the_middle_of_a_joined_row(
    plain: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """To the very record, and what is left of the row is a row."""
    master = Rewriting(SIZES, since=ENDS[26])
    if moment == "before":
        join(plain, lake)
        Repair(plain, str(lake), master).run()
    else:
        meanwhile(monkeypatch, Repair(plain, str(lake), master).run)
        assert join(plain, lake).into == 0
    assert held(plain, lake).offset == ENDS[26]
    assert rows(lake)[-1][1] == 26
    assert completeness(lake).whole[0].range == span(0, ENDS[26])
    join(plain, lake)
    assert completeness(lake).whole[0].range == span(0, ENDS[26])


def test_the_next_run_does_what_a_killed_one_did_not(
    plain: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the files, before the commit; the stream goes on meanwhile."""
    with monkeypatch.context() as here:
        here.setattr(KernelTable, "replace", lambda *given, **named: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            join(plain, lake)
    assert len(rows(lake)) == 10
    meanwhile(monkeypatch, lambda: opened(plain, lake, MemoryMaster((*SIZES, 77)))(ranges(ENDS[40], ENDS[40] + 77)))
    assert join(plain, lake).into == 2
    assert [row["start"] for row in ledger(lake)] == [0, ENDS[20], ENDS[40]]
