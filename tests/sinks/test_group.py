"""Several logs in one batch: one commit for all of them, and what one meets is its own."""

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from sinks.batch.group import Group
from sinks.batch.proof import BatchStep
from sinks.delta.kernel import KernelTable
from sinks.state.fence import this_writer
from sinks.tables import LOG
from sources.errors import (
    AboveMaximum,
    CorruptRecord,
    CoverageError,
    Gap,
    LogtwinError,
    MasterRefused,
    MasterSilent,
    MasterUnreachable,
    ReplicaError,
    Rewritten,
    TakenOver,
)
from sources.master import PlanFailed, Planned
from tests.documents import PROJECT
from tests.sinks.groups import Members, Refusing, Slow, Tables, named, sound, splits
from tests.sinks.killed import Killed, dying_after
from tests.sinks.memory_master import (
    Damaged,
    Doubling,
    Failing,
    Holed,
    HoledInside,
    MemoryMaster,
    RecordingSession,
    Rewriting,
    Short,
)
from tests.sinks.one_log import OneLog
from tests.sinks.unheard import lose_answers, missing_files
from tests.spans import span

pytestmark = pytest.mark.job

SIZES = (10, 90, 300, 5, 5, 90)  # records start at 0, 10, 100, 400, 405, 410 and end at 500


def claimed_by_another(plain: SparkSession, warehouse: Path, name: str) -> None:
    OneLog(plain, LOG.path(str(warehouse)), named(name)).claim(this_writer())


# --- together


def test_logs_move_in_one_commit_and_each_account_is_right(plain: SparkSession, tmp_path: Path) -> None:
    masters = sound("a", "b", sizes=SIZES) | {"c": Damaged(SIZES, log_id=named("c"), bad=(100,))}
    members, tables = Members(plain, tmp_path, masters), Tables(plain, tmp_path)
    before = tables.version("log"), tables.version("ledger")
    members.apply(*splits("a", 0, 500, 150), *splits("b", 0, 150), *splits("c", 0, 500))
    assert (tables.version("log"), tables.version("ledger")) == (before[0] + 1, before[1] + 1)
    assert members.positions() == {"a": 500, "b": 400, "c": 500}  # the record at 100 reaches past the end of b's batch
    assert members.promises == {"a": [500], "b": [400], "c": [500]}
    tables.assert_one_copy(masters["a"], 500)
    tables.assert_one_copy(masters["b"], 400)
    tables.assert_one_copy(masters["c"], 500, but=[100])
    assert len(tables.ledger("a")) == 2  # in the splits from 150 and from 450 no record starts
    results = members.results
    assert {name: (one.range, one.records, one.bytes) for name, one in results.items()} == {
        "a": (span(0, 500), 6, 500),
        "b": (span(0, 400), 3, 400),
        "c": (span(0, 500), 5, 200),
    }
    assert [one.range for one in results["c"].incidents] == [span(100, 400)]
    assert not results["a"].incidents


def test_the_picture_names_the_steps_in_their_order(plain: SparkSession, tmp_path: Path) -> None:
    """What ARCHITECTURE.md says that a batch goes through is what one calls, one after the other."""
    named = re.search(r"code:\s((?:`\w+`[,.]\s)+)", (PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    assert named is not None
    steps = re.findall(r"\w+", named[1])
    members, called = Members(plain, tmp_path, sound("a", sizes=SIZES)), list[str]()
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        members.bring(500)
    finally:
        sys.setprofile(None)
    assert [one for one in dict.fromkeys(called) if one in steps] == steps


def test_a_batch_of_replays_commits_nothing_and_acknowledges_again(plain: SparkSession, tmp_path: Path) -> None:
    seen: list[BatchStep] = []
    tables = Tables(plain, tmp_path)
    members = Members(plain, tmp_path, sound("a", "b", sizes=SIZES), on_step=seen.append)
    members.bring(500)
    before = tables.version("log"), tables.version("ledger")
    seen.clear()
    members.apply(*splits("a", 0, 500), *splits("b", 0, 100))
    assert seen == [BatchStep.ACKNOWLEDGE]
    assert members.promises == {"a": [500, 500], "b": [500, 500]}
    assert (tables.version("log"), tables.version("ledger")) == before


def test_plans_of_a_log_that_left_are_ignored(plain: SparkSession, tmp_path: Path) -> None:
    masters = sound("a", "gone", sizes=SIZES)
    Members(plain, tmp_path, masters).bring(100)
    members, tables = Members(plain, tmp_path, {"a": masters["a"]}), Tables(plain, tmp_path)
    failed = PlanFailed("rocketmq/gone", MasterUnreachable("no connection"))
    members.apply(*splits("a", 100, 500), *splits("gone", 100, 500), failed)
    assert (list(members.results), members.errors) == (["a"], {})
    tables.assert_one_copy(masters["a"], 500)
    tables.assert_one_copy(masters["gone"], 100)


# --- what one log meets is its own


@dataclass(frozen=True)
class Trouble:
    """A log that holds [0, 100): what it meets on its way to 500, and what comes of that."""

    name: str
    error: type[LogtwinError]
    offset: int | None = None
    master: MemoryMaster | None = None
    session: RecordingSession | None = None
    planned: tuple[Planned, ...] = ()


def troubles() -> list[Trouble]:
    def of(name: str, master: type[MemoryMaster], expected: type[LogtwinError], at: int, **how: object) -> Trouble:
        return Trouble(name, expected, at, master(SIZES, log_id=named(name), **how))  # type: ignore[arg-type]

    refused, away = MasterRefused("it is starting"), MasterUnreachable("no connection", offset=100)
    lost_tail = AboveMaximum("the master lost its tail", offset=100)
    two_batches = (*splits("two-batches", 100, 500), *splits("two-batches", 100, 400))
    return [
        of("away", Failing, MasterUnreachable, 100, error=away),
        of("damaged", Failing, CorruptRecord, 410, error=CorruptRecord("bad checksum", offset=410)),
        of("holed", Holed, CoverageError, 405, hole=405),
        of("holed-inside", HoledInside, CoverageError, 405, hole=405),
        replace(of("twice", Doubling, CoverageError, 400), planned=tuple(splits("twice", 100, 500, 300))),
        of("short", Short, CoverageError, 410, stop=410),
        of("rewritten", Rewriting, Rewritten, 10),
        of("defect", Failing, LogtwinError, 100, error=KeyError("nobody thought of it")),
        of("silent", Slow, MasterSilent, 100, bytes_per_s=50),
        Trouble("gap", Gap, 100, planned=tuple(splits("gap", 400, 500))),
        Trouble("two-batches", CoverageError, planned=two_batches),
        Trouble("unplanned", AboveMaximum, 100, planned=(PlanFailed("rocketmq/unplanned", lost_tail),)),
        Trouble("refused", MasterRefused, session=Refusing(refused)),
        Trouble("defect-in-turn", LogtwinError, session=Refusing(KeyError("nobody thought of it"))),
        Trouble("taken", TakenOver, 100),
        Trouble("taken-while-read", TakenOver, 100),
    ]  # fmt: skip


def test_whatever_one_log_meets_the_others_are_committed(plain: SparkSession, tmp_path: Path) -> None:
    """HA-41: and nothing of its own is visible."""
    met = {one.name: one for one in troubles()}
    masters = sound("a", *met, "z", sizes=SIZES)
    tables = Tables(plain, tmp_path)
    Members(plain, tmp_path, masters).bring(100)

    def take(step: BatchStep) -> None:
        if step is BatchStep.FILES:
            claimed_by_another(plain, tmp_path, "taken-while-read")

    now = masters | {name: one.master for name, one in met.items() if one.master is not None}
    sessions = {name: one.session for name, one in met.items() if one.session is not None}
    members = Members(plain, tmp_path, now, on_step=take, patience_s=1.0, sessions=sessions)
    claimed_by_another(plain, tmp_path, "taken")
    ledger = tables.version("ledger")
    members.apply(*(one for name in now for one in ((name in met and met[name].planned) or splits(name, 100, 500))))

    assert {name: one.range for name, one in members.results.items()} == {"a": span(100, 500), "z": span(100, 500)}
    assert {name: (type(one), one.offset) for name, one in members.errors.items()} == {
        name: (one.error, one.offset) for name, one in met.items()
    }
    for name, error in members.errors.items():
        assert error.log == f"rocketmq/{name}"
    assert "KeyError: 'nobody thought of it'" in str(members.errors["defect"].found)
    assert members.promises == {name: [500] if name in "az" else [] for name in now}
    for name, master in masters.items():
        tables.assert_one_copy(master, 500 if name in "az" else 100)
    assert tables.version("ledger") == ledger + 1
    # What a log that was taken over had written is left to VACUUM, since a commit may have named it.
    assert len(tables.files_of_no_commit()) == 1

    again = Members(plain, tmp_path, masters)
    again.bring(500)
    assert again.errors == {}
    for master in masters.values():
        tables.assert_one_copy(master, 500)


def test_a_state_that_nobody_can_read_is_its_log_s_own(plain: SparkSession, tmp_path: Path) -> None:
    members = Members(plain, tmp_path, sound("a", "b", sizes=SIZES))
    table = KernelTable(plain, LOG.path(str(tmp_path)))
    table.commit(table.existing(), domains={"logtwin.rocketmq/a": "{}"})
    members.bring(500)
    assert {name: (type(one), one.log) for name, one in members.errors.items()} == {"a": (ReplicaError, "rocketmq/a")}
    assert members.positions() == {"a": None, "b": 500}


def test_a_defect_behind_the_commit_is_its_log_s_own(
    plain: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = Members(plain, tmp_path, sound("a", "b", sizes=SIZES))
    monkeypatch.setattr(members.replicas["a"], "follow", Mock(side_effect=KeyError("nobody thought of it")))
    members.bring(500)
    assert [(name, type(one)) for name, one in members.errors.items()] == [("a", LogtwinError)]
    assert "KeyError: 'nobody thought of it'" in str(members.errors["a"].found)
    assert (list(members.results), members.positions()) == (["b"], {"a": 500, "b": 500})


# --- kills


@pytest.mark.parametrize("step", BatchStep)
def test_a_kill_after_any_step_leaves_one_copy_of_each(plain: SparkSession, tmp_path: Path, step: BatchStep) -> None:
    """HA-45."""
    masters = sound("a", "b", sizes=SIZES) | {"c": Damaged(SIZES, log_id=named("c"), bad=(405,))}
    tables = Tables(plain, tmp_path)
    Members(plain, tmp_path, masters).bring(100)
    killed = Members(plain, tmp_path, masters, on_step=dying_after(step))
    with pytest.raises(Killed):
        killed.bring(410, split=200)
    reached = 100 if step is BatchStep.FILES else 410
    again = Members(plain, tmp_path, masters)
    assert again.positions() == dict.fromkeys("abc", reached)
    for name, master in masters.items():
        tables.assert_one_copy(master, reached, but=[405] if name == "c" and reached > 405 else [])
    again.apply(*(one for name in "abc" for one in splits(name, 100, 410, 200)))  # what was planned before
    again.bring(500)
    assert again.promises == {name: [410, 500] for name in "abc"}
    for name, master in masters.items():
        tables.assert_one_copy(master, 500, but=[405] if name == "c" else [])


def test_unheard_commits_leave_one_copy_in_every_table(
    plain: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    masters = sound("a", "b", sizes=SIZES) | {"c": Damaged(SIZES, log_id=named("c"), bad=(100,))}
    members, tables = Members(plain, tmp_path, masters), Tables(plain, tmp_path)
    lost = lose_answers(monkeypatch)
    members.bring(500)
    assert {*lost} >= {"log", "ledger", "quarantine", "incidents"}
    assert members.promises == {name: [500] for name in "abc"}
    assert missing_files(tmp_path) == []
    for name, master in masters.items():
        tables.assert_one_copy(master, 500, but=[100] if name == "c" else [])


def test_what_others_of_this_run_have_moved_meanwhile_is_not_lost(plain: SparkSession, tmp_path: Path) -> None:
    """The version of a group's last commit, on which it builds the next, does not know of it."""
    members, alone = Members(plain, tmp_path, sound("a", "b", sizes=SIZES)), Group(plain, str(tmp_path))
    for end in (100, 405):
        members.bring(end)
        alone.bring(members.replicas["b"], span(end, end + 1))
    members.bring(500)
    assert (members.errors, members.positions()) == ({}, {"a": 500, "b": 500})
    Tables(plain, tmp_path).assert_one_copy(sound("b", sizes=SIZES)["b"], 500)


# --- masters that are slow


def test_a_log_is_waited_for_where_there_is_no_other(plain: SparkSession, tmp_path: Path) -> None:
    """Patience holds also for a batch of one log, if its group has others."""
    slow: dict[str, MemoryMaster] = {"slow": Slow(SIZES, log_id=named("slow"), bytes_per_s=1)}
    alone = Members(plain, tmp_path / "alone", slow, patience_s=1.0)
    alone.bring(500)
    assert alone.positions() == {"slow": 500}
    members = Members(plain, tmp_path / "beside", {**sound("a", sizes=SIZES), **slow}, patience_s=1.0)
    members.apply(*splits("slow", 0, 500))
    assert [type(error) for error in members.errors.values()] == [MasterSilent]
    assert members.too_slow == ["slow"]


# --- a log by itself


def test_a_record_that_takes_longer_than_a_batch_has_is_brought_alone(plain: SparkSession, tmp_path: Path) -> None:
    slow = Slow(SIZES, log_id=named("slow"), chunk_records=1, bytes_per_s=195)  # of the record of 300 and the link
    masters: dict[str, MemoryMaster] = {**sound("a", sizes=SIZES), "slow": slow}
    members, tables = Members(plain, tmp_path, masters, patience_s=1.0), Tables(plain, tmp_path)
    members.bring(100)
    replica = members.replicas["slow"]
    assert members.too_slow == []
    members.apply(*splits("a", 100, 500), *splits("slow", 100, 500))
    assert (list(members.errors), members.too_slow) == (["slow"], ["slow"])
    found = members.group.bring(replica, span(100, 500))
    assert (found.range, found.records, found.bytes) == (span(100, 400), 1, 300)
    assert (replica.position(), members.promises["slow"]) == (400, [100, 400])
    tables.assert_one_copy(slow, 400)
    assert tables.files_of_no_commit() == []
    assert members.too_slow == ["slow"]  # the time of a group may still be too short
    members.apply(*splits("slow", 400, 500))  # it has to send the last record once more, which takes too long
    assert (replica.position(), members.too_slow) == (400, ["slow"])
    members.group.bring(replica, span(400, 410))
    members.apply(*splits("slow", 410, 500))
    assert (replica.position(), members.too_slow) == (500, [])
    tables.assert_one_copy(slow, 500)


def test_a_log_that_is_late_alone_gets_more_time(plain: SparkSession, tmp_path: Path) -> None:
    slow = Slow(SIZES, log_id=named("slow"), chunk_records=1, bytes_per_s=40)  # ten bytes and ninety: three seconds
    members = Members(plain, tmp_path, {**sound("a", sizes=SIZES), "slow": slow}, patience_s=0.1)
    members.apply(*splits("a", 0, 500), *splits("slow", 10, 500))
    replica = members.replicas["slow"]
    with pytest.raises(MasterSilent, match="within 2 s"):
        members.group.bring(replica, span(10, 500))
    assert members.group.bring(replica, span(10, 500)).range == span(10, 100)


def test_a_log_brought_alone_fails_as_in_a_group(plain: SparkSession, tmp_path: Path) -> None:
    masters = sound("a", "b", "c", sizes=SIZES)
    Members(plain, tmp_path, masters).bring(100)
    failing = {
        **masters,
        "b": Rewriting(SIZES, log_id=named("b")),
        "c": Failing(SIZES, log_id=named("c"), error=MasterUnreachable("away")),
    }
    members, tables = Members(plain, tmp_path, failing), Tables(plain, tmp_path)
    claimed_by_another(plain, tmp_path, "a")
    for name, error in (("a", TakenOver), ("b", Rewritten), ("c", MasterUnreachable)):
        with pytest.raises(error):
            members.group.bring(members.replicas[name], span(100, 500))
        tables.assert_one_copy(masters[name], 100)
    assert members.promises == {"a": [], "b": [], "c": []}
