"""Replicas that are opened at the same time: one claim for all, and what is wrong with one is its own."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.batch import replica as module
from sinks.batch.replica import Opening, Replica, open_together
from sinks.state.fence import this_writer
from sinks.state.log_state import PendingRepair, Writer
from sinks.state.positions import Beginning, Positions
from sinks.tables import LOG
from sources.errors import RepairPending, ReplicaError, TakenOver
from sources.offsets import LogId, Offset
from tests.around import at_first
from tests.patience import wait_until
from tests.sinks.at_once import at_once
from tests.sinks.groups import Tables, named
from tests.sinks.memory_master import MemoryMaster, RecordingSession
from tests.sinks.one_log import OneLog

NAMES = ("a", "b", "c", "d")


def replica_of(plain: SparkSession, warehouse: Path, name: str, writer: Writer | None = None) -> Replica:
    return Replica(plain, str(warehouse), MemoryMaster((10, 20), log_id=named(name)), RecordingSession(), writer)


class Job:
    """A run whose logs each begin in a thread of their own."""

    def __init__(self, plain: SparkSession, warehouse: Path) -> None:
        self.tables = Tables(plain, warehouse)
        self._opening = Opening()
        self.replicas = {name: replica_of(plain, warehouse, name, self._opening.writer) for name in NAMES}

    def open(self) -> dict[str, type[Exception] | None]:
        """What kept each from it."""

        def one(name: str) -> type[Exception] | None:
            try:
                self._opening.open(self.replicas[name])
            except ReplicaError as error:
                return type(error)
            return None

        return dict(zip(NAMES, at_once([partial(one, name) for name in NAMES]), strict=True))

    def owners(self) -> dict[str, str | None]:
        held = {name: self.tables.held(name).state for name in NAMES}
        return {name: None if state is None else state.writer.run for name, state in held.items()}

    @property
    def run(self) -> str:
        return self._opening.writer.run


@pytest.fixture
def job(plain: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Whose first opening begins when all others wait."""
    found = Job(plain, tmp_path)
    waiting = found._opening._wanted._waiting
    counts: list[int] = []

    def slow(replicas: list[Replica], beginnings: list[Beginning]) -> Sequence[LogId]:
        if not counts:
            wait_until(lambda: len(waiting) == len(NAMES), "all of them")
        counts.append(len(replicas))
        return open_together(replicas, beginnings)

    monkeypatch.setattr(module, "open_together", slow)
    return found


def test_all_that_wait_for_the_first_are_claimed_in_one_commit(job: Job) -> None:
    assert job.open() == dict.fromkeys(NAMES)
    assert job.owners() == dict.fromkeys(NAMES, job.run)
    assert job.tables.version() == 2  # 0 is the table, 1 who came first


def begin_repair(plain: SparkSession, warehouse: Path, name: str) -> None:
    table = OneLog(plain, LOG.path(str(warehouse)), named(name))
    table.mark(table.read(), replace(table.state(), repair=PendingRepair(to=Offset(0), epoch=1)))


def test_a_log_in_repair_does_not_keep_others_closed(plain: SparkSession, tmp_path: Path, job: Job) -> None:
    open_together([replica_of(plain, tmp_path, "b")])
    begin_repair(plain, tmp_path, "b")
    assert job.open() == {"a": None, "b": RepairPending, "c": None, "d": None}
    assert [name for name, run in job.owners().items() if run == job.run] == ["a", "c", "d"]


def test_a_repair_that_begins_while_the_log_is_claimed_is_seen(
    plain: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    open_together([replica_of(plain, tmp_path, "b")])
    at_first(monkeypatch, Positions, "claim", lambda: begin_repair(plain, tmp_path, "b"))
    with pytest.raises(RepairPending) as caught:
        open_together([replica_of(plain, tmp_path, "b")])
    assert (caught.value.log, caught.value.offset) == ("rocketmq/b", 0)
    assert "logtwin repair" in str(caught.value.hint)


def test_only_the_log_that_was_taken_fails_to_open_again(plain: SparkSession, tmp_path: Path, job: Job) -> None:
    job.open()
    theirs = this_writer()
    OneLog(plain, LOG.path(str(tmp_path)), named("c")).claim(theirs)
    version = job.tables.version()
    assert job.open() == {"a": None, "b": None, "c": TakenOver, "d": None}
    assert job.owners() == {**dict.fromkeys(NAMES, job.run), "c": theirs.run}
    assert job.tables.version() == version  # what this run has it need not claim


def test_replicas_that_belong_together_are_opened_all_or_none(plain: SparkSession, tmp_path: Path) -> None:
    opening = Opening()
    lost, other = (replica_of(plain, tmp_path, name, opening.writer) for name in ("x", "y"))
    opening.open(lost, other)
    OneLog(plain, LOG.path(str(tmp_path)), named("x")).claim(this_writer())
    with pytest.raises(TakenOver):
        opening.open(lost, other)
    opening.open(other)
