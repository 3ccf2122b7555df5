"""A leader with another past: the replica goes back to what both share, and on from there, and the job does it.

The numbers are the scenarios of dister's specification. A dirty replica is made as in life: it is the replica of a
leader whose writes the next one does not have; so each of them is a switch of leaders, too (42).
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, parse
from pipeline.job.auto_repair import mend
from pipeline.job.replicate import Job
from pipeline.monitoring.progress import Phase
from sinks.books.incident import State
from sinks.books.incidents import IncidentsTable
from sinks.healing.repair import Repair, Repaired
from sinks.healing.repair_steps import RepairStep
from sinks.state.fence import this_writer
from sinks.state.log_state import LogState
from sinks.state.position import LogTable
from sources.dister.files.layout import ENTRY_LOG
from sources.dister.format import columns
from sources.dister.log import DisterLog
from sources.errors import AboveMaximum, MasterSilent, Recreated, RepairPending, Rewritten, TakenOver
from sources.loss import Condition
from sources.offsets import LogId, Offset
from sources.options import CheckAndFix
from sources.registry import open_log
from tests.dister_folders import dirty, leader, line, write_log
from tests.pipeline import running
from tests.pipeline.group_in_process import also_with_spark
from tests.pipeline.repair_bench import Killed, dying_after
from tests.pipeline.running import replicate_now, run_until
from tests.sinks.batches import Solo, ranges

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Case:
    """What the replica has, and what its leader has by then; the index of the last entry that both keep, 0 for none.

    `kept` None: the replica goes on as it is. `changed`: indexes at which the replica's entries say something else.
    """

    replica: Sequence[int]
    leader: Sequence[int]
    kept: int | None
    mode: CheckAndFix = "safe"
    changed: tuple[int, ...] = ()


WITHOUT_5 = [one for one in leader(50) if one // 10_000 != 5]
EDGE = leader(6, first=99_995)  # the last five of the first batch file, and the first of the second
CASES = {
    "21-safe": Case(leader(10) + dirty(11, 5), leader(500), 10),
    "21-faithful": Case(leader(10) + dirty(11, 5), leader(500), 1, "faithful"),
    "22-safe": Case(leader(10) + dirty(11, 9999), leader(500), 10),
    "22-faithful": Case(leader(10) + dirty(11, 9999), leader(500), 0, "faithful"),
    "23-faithful": Case(leader(999) + dirty(1000, 5), leader(1049), 1, "faithful"),
    "26-faithful": Case(leader(1000) + dirty(1001, 9999), leader(1050), 0, "faithful"),
    "27-faithful": Case(leader(1001) + dirty(1002, 5), leader(1051), 2, "faithful"),
    "28-faithful": Case(leader(2000) + dirty(2001, 9999), leader(2050), 3, "faithful"),
    "29-faithful": Case(leader(3000) + dirty(3001, 9999, 20), leader(3100), 1022, "faithful"),
    "30-safe": Case(leader(3000) + dirty(3001, 5, 1500), leader(5000), 3000),
    "31-safe": Case(leader(2) + dirty(3, 5), leader(10), 2),
    "31-faithful": Case(leader(2) + dirty(3, 5), leader(10), 0, "faithful"),
    "32-safe": Case(leader(3) + dirty(4, 9999), leader(10), 3),
    "33-safe": Case(dirty(1, 5, 2500), leader(2600), 0),
    "34-safe": Case(sorted(WITHOUT_5 + dirty(5, 5) + dirty(51, 5)), leader(100), 4),
    "35-safe": Case(leader(20), leader(30), 6, changed=(7,)),
    "36a-safe": Case(leader(10) + dirty(11, 7), leader(10), 10),
    "36b-safe": Case(leader(10) + dirty(11, 7), leader(12), 10),
    "36a-faithful": Case(leader(10) + dirty(11, 7), leader(10), 1, "faithful"),
    "38-safe": Case(EDGE[:3] + dirty(99_998, 5, 6), EDGE + leader(9, first=100_001), 99_997),
    "39-safe": Case(EDGE + dirty(100_001, 5, 2), EDGE + leader(9, first=100_001), 100_000),
    "42-valid": Case(leader(20), leader(40), None),
    "42-gaps": Case(leader(20) + leader(3, first=25), leader(20) + leader(20, first=22), 20),
}
ALWAYS = ("21-safe", "33-safe", "36a-safe")
"""What the others find is in the table of the two rules (`tests/sources/dister`), too, and most are scenarios of
`tests/dister`."""


@dataclass(frozen=True)
class Bench:
    """Logs by name in one warehouse; of each a leader's folder, which the configuration names."""

    session: SparkSession
    folder: Path

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def leader(self, name: str) -> Path:
        return self.folder / "leaders" / name

    def config(self, **logs: dict[str, Any]) -> Config:
        """Of each of `logs` its options beside id and path."""
        wanted = [{"id": f"dister/{name}", "path": str(self.leader(name)), **options} for name, options in logs.items()]
        return parse({"warehouse": str(self.lake), "trigger_interval_s": 0.1, "logs": wanted}, where="test")

    def replicate(self, **logs: dict[str, Any]) -> None:
        replicate_now(self.session, self.config(**logs))

    def repair(
        self, name: str, step: RepairStep | None = None, *, accept_master: bool = False, mode: str = "safe"
    ) -> Repaired:
        """By hand, killed after `step`."""
        (one,) = self.config(**{name: {"check_and_fix": mode}}).logs
        on_step = (lambda done: None) if step is None else dying_after(step)
        return Repair(self.session, str(self.lake), open_log(one), on_step=on_step).run(accept_master=accept_master)

    def state(self, name: str) -> LogState:
        state = LogTable(self.session, f"{self.lake}/log", LogId("dister", name)).read().state
        assert state is not None
        return state

    def incidents(self, name: str) -> list[tuple[Condition, State]]:
        rows = IncidentsTable(self.session, str(self.lake), LogId("dister", name)).all()
        return [(row.found.condition, row.state) for row in rows]

    def table(self, table: str, name: str, order: str = "offset") -> Any:
        """The rows of one log, in order, as an Arrow table. Read by delta-rs."""
        if not (self.lake / table).exists():
            return None
        rows = DeltaTable(f"{self.lake}/{table}").to_pyarrow_table(filters=[("log_id", "=", f"dister/{name}")])
        return rows.sort_by(order)

    def check(self, name: str, ids: Sequence[int]) -> None:
        """The replica is the log of `ids`, each entry once, and its ledger proves it."""
        rows = self.table("log", name).combine_chunks()
        assert rows["queue_offset"].to_pylist() == list(ids)
        lines = b"".join(columns.restore(batch) for batch in rows.to_batches())
        assert lines == b"".join(map(line, ids))
        at = 0
        for row in self.table("ledger", name, "start").to_pylist():
            covered = b"".join(line(one) for one in ids if row["start"] <= one < row["end"])
            assert (row["start"], row["bytes"]) == (at, len(covered))
            assert row["checksum"] == f"sha256:{hashlib.sha256(covered).hexdigest()}"
            at = row["end"]
        assert at == self.state(name).offset == (ids[-1] + 1 if ids else 0)


@dataclass
class Follower:
    """The replica of a leader's folder, as a job has it, batch by batch and without a stream."""

    bench: Bench
    name: str
    mode: CheckAndFix = "safe"
    max_entries: int = 2000

    def __post_init__(self) -> None:
        self.master = DisterLog(
            log_id=LogId("dister", self.name),
            path=str(self.bench.leader(self.name)),
            check_and_fix=self.mode,
            max_entries_per_trigger=self.max_entries,
        )
        self._writer = this_writer()
        self.replica = Solo(
            self.bench.session, str(self.bench.lake), self.master, self.master.open_session(), self._writer
        )
        self.replica.open()

    def catch_up(self) -> None:
        """All batches up to the end of the leader's log."""
        maximum = self.master.bounds().end
        while (at := self.replica.position() or Offset(0)) < maximum:
            end = self.master.end_of_batch(at, maximum, 10**9)
            self.replica(ranges(at, end, split=10**18, log_id=f"dister/{self.name}"))

    def mend(self) -> None:
        """What the job does when the proof failed."""
        mend(self.bench.session, str(self.bench.lake), self.master, self._writer, is_owner=True)
        self.replica.open()


@pytest.fixture(scope="module")
def bench(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(session, tmp_path_factory.mktemp("logs"))


@pytest.mark.parametrize(
    "name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.nightly) for name in CASES]
)
def test_the_replica_is_the_leaders_log_again(bench: Bench, name: str) -> None:
    case = CASES[name]
    write_log(bench.leader(name), case.replica, case.changed)
    follower = Follower(bench, name, case.mode)
    follower.catch_up()
    write_log(bench.leader(name), case.leader)
    if case.kept is None:
        follower.replica.prove_master()
    else:
        with pytest.raises(AboveMaximum if case.replica[-1] > case.leader[-1] else Rewritten):
            follower.replica.prove_master()
        follower.mend()
        follower.replica.prove_master()
    follower.catch_up()
    bench.check(name, case.leader)
    check_what_was_done(bench, name, case)


def check_what_was_done(bench: Bench, name: str, case: Case) -> None:
    state = bench.state(name)
    if case.kept is None:
        assert (state.epoch, state.repair, bench.incidents(name)) == (0, None, [])
        return
    kept = [one for one in case.leader if one // 10_000 <= case.kept]
    common = kept[-1] + 1 if case.kept else 0
    assert (state.epoch, state.branched_at, state.repair) == (1, common, None)
    removed = bench.table("removed", name)["queue_offset"].to_pylist()
    assert removed == [one for one in case.replica if one >= common]
    is_short = case.replica[-1] > case.leader[-1]
    condition = Condition.ABOVE_MAXIMUM if is_short else Condition.REWRITTEN
    assert bench.incidents(name) == [(condition, State.HEALED)]


@pytest.mark.parametrize("name", ["34-differs", "34-lacks"])
def test_34_faithful_believes_what_lies_before_its_point(bench: Bench, name: str) -> None:
    """dister's rule keeps a wrong prefix; and it goes on from there, though the entry before the point is another."""
    theirs = leader(100)
    mine = sorted([*WITHOUT_5, *(dirty(5, 5) if name == "34-differs" else []), *dirty(51, 5)])
    write_log(bench.leader(name), mine)
    follower = Follower(bench, name, "faithful")
    follower.catch_up()
    write_log(bench.leader(name), theirs)
    with pytest.raises(Rewritten):
        follower.replica.prove_master()
    follower.mend()
    assert follower.replica.position() == theirs[5] + 1
    follower.replica.prove_master()
    follower.catch_up()
    found = bench.table("log", name)["queue_offset"].to_pylist()
    assert found == [one for one in mine if one <= theirs[5]] + theirs[6:]
    write_log(bench.leader(name), leader(120))
    follower.replica.prove_master()
    follower.catch_up()
    assert (bench.state(name).epoch, bench.state(name).offset) == (1, leader(120)[-1] + 1)


def test_no_repair_without_a_difference(bench: Bench) -> None:
    """The leader was seen while it wrote its log anew: that is waited out."""
    write_log(bench.leader("still"), leader(10))
    follower = Follower(bench, "still")
    follower.catch_up()
    with pytest.raises(MasterSilent):
        follower.mend()
    assert (bench.state("still").epoch, bench.incidents("still")) == (0, [])


def test_a_job_that_lost_its_log_mends_nothing(bench: Bench) -> None:
    """DI-52, DI-71."""
    write_log(bench.leader("lost"), leader(10))
    older = Follower(bench, "lost")
    older.catch_up()
    Follower(bench, "lost")
    write_log(bench.leader("lost"), leader(5))
    with pytest.raises(TakenOver):
        older.mend()
    assert (bench.state("lost").epoch, bench.state("lost").repair) == (0, None)


# --- refused


def test_19_an_empty_leader_has_to_be_accepted(session: SparkSession, tmp_path: Path) -> None:
    bench = Bench(session, tmp_path)
    write_log(bench.leader("a"), leader(10))
    bench.replicate(a={})
    shutil.rmtree(bench.leader("a") / ENTRY_LOG)
    with pytest.raises(Recreated) as caught:
        bench.replicate(a={})
    assert (caught.value.log, caught.value.exit_code) == ("dister/a", 4)
    assert "--accept-master" in (caught.value.hint or "")
    with pytest.raises(Recreated):
        bench.repair("a")
    bench.check("a", leader(10))
    assert bench.repair("a", accept_master=True).position == 0
    bench.replicate(a={})
    bench.check("a", [])
    write_log(bench.leader("a"), dirty(1, 7, 3))
    bench.replicate(a={})
    bench.check("a", dirty(1, 7, 3))


def test_off_leaves_the_repair_to_a_person(session: SparkSession, tmp_path: Path) -> None:
    bench, off = Bench(session, tmp_path), {"check_and_fix": "off"}
    mine = leader(10) + dirty(11, 5, 3)
    write_log(bench.leader("a"), mine)
    bench.replicate(a=off)
    write_log(bench.leader("a"), leader(20))
    with pytest.raises(Rewritten) as caught:
        bench.replicate(a=off)
    assert caught.value.log == "dister/a"
    assert "logtwin repair" in (caught.value.hint or "")
    assert bench.table("log", "a")["queue_offset"].to_pylist() == mine
    assert bench.state("a").epoch == 0
    with pytest.raises(Killed):
        bench.repair("a", RepairStep.CUT, mode="off")
    with pytest.raises(RepairPending):
        bench.replicate(a=off)
    assert bench.repair("a", mode="off").position == leader(10)[-1] + 1
    bench.replicate(a=off)
    bench.check("a", leader(20))


# --- while it runs


@also_with_spark
def test_43_a_log_that_is_rewritten_under_a_running_job(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is longer than before; a repair that fails is tried again, after a wait."""
    bench, failures = Bench(session, tmp_path), [MasterSilent("gone for a moment")]

    def failing_once(*given: Any, **named: Any) -> None:
        if failures:
            raise failures.pop()
        mend(*given, **named)

    monkeypatch.setattr("pipeline.job.log_replication.mend", failing_once)
    write_log(bench.leader("a"), leader(30))
    running.register(session)
    job = Job(session, bench.config(a={}), available_now=False)
    job.start()
    try:
        run_until(job, lambda now: now.records == 30)
        writer = bench.state("a").writer
        longer = leader(10) + dirty(11, 7, 60)
        replace_at_once(bench, longer)
        now = run_until(job, lambda now: now.records == 90)
        bench.check("a", longer)
        assert (bench.state("a").epoch, bench.state("a").writer) == (1, writer)
        assert not failures
        assert now.failures["MasterSilent"] == 1

        replace_at_once(bench, leader(5))
        now = run_until(job, lambda now: now.position == leader(5)[-1] + 1 and now.phase is Phase.RUNNING)
        bench.check("a", leader(5))
        assert (bench.state("a").epoch, bench.state("a").writer) == (2, writer)
        assert now.incidents["above_maximum"] == 1

        shutil.rmtree(bench.leader("a") / ENTRY_LOG)
        now = run_until(job, lambda now: now.phase is Phase.FAILED)
        assert isinstance(now.error, Recreated)
    finally:
        job.close()
    bench.check("a", leader(5))


def replace_at_once(bench: Bench, ids: Sequence[int]) -> None:
    """Another log at the same place; of these, small ones, no reader sees a half."""
    write_log(bench.folder / "new", ids)
    old = bench.leader("a") / ENTRY_LOG / "0/0"
    (bench.folder / "new" / ENTRY_LOG / "0/0").replace(old)
