"""A warehouse of the time when a log's state was one text is opened and goes on: nothing doubled, nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.batch.group import Group
from sinks.batch.opening import Opening
from sinks.batch.replica import Replica
from sinks.batch.result import BatchResult
from sinks.books.topic_states import topics_held
from sinks.delta.kernel import KernelTable
from sinks.state.fence import this_writer
from sinks.tables import KAFKA_LOG, LOG
from sources.errors import TakenOver
from sources.master import PlannedSplit
from sources.offsets import LogId, Offset
from tests.sinks.batches import rows
from tests.sinks.groups import assert_ledger, named
from tests.sinks.memory_master import Damaged, MemoryMaster, RecordingSession
from tests.sinks.memory_partition import ORDERS, TOPIC_ID, partitions
from tests.sinks.one_log import OneLog
from tests.sinks.topic_batches import Twin
from tests.spans import span
from tests.truth import FIXTURES, unpack

SIZES = (10, 90, 300, 5, 5, 90)  # records start at 0, 10, 100, 400, 405, 410 and end at 500
MASTERS = (
    MemoryMaster(SIZES, log_id=named("a")),
    Damaged(SIZES, log_id=named("b"), bad=(100,)),
    MemoryMaster(SIZES, log_id=LogId("dister", "shop")),
)
PARTITIONS = partitions(tuple(range(40)), tuple(range(40)), tuple(range(0, 40, 2)), end=40)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    unpack(FIXTURES / "states-in-one-piece" / "lake.tar.gz", tmp_path)
    return tmp_path / "lake"


def test_logs_go_on_and_their_states_are_taken_apart(plain: SparkSession, lake: Path) -> None:
    opening = Opening()
    sessions = [RecordingSession() for _ in MASTERS]
    replicas = [
        Replica(plain, str(lake), master, session, opening.writer)
        for master, session in zip(MASTERS, sessions, strict=True)
    ]
    table = KernelTable(plain, LOG.path(str(lake)))
    assert '"writer"' in str(table.existing().domain("logtwin.rocketmq/a"))
    opening.open(*replicas)
    assert [one.position() for one in replicas] == [405, 405, 405]
    assert [one.state.first for one in replicas if one.state] == [0, 0, 0]
    planned = [PlannedSplit(str(one.log_id), span(405, 500), span(405, 500)) for one in MASTERS]
    outcomes = Group(plain, str(lake)).apply(planned, {str(one.log_id): one for one in replicas})
    assert all(isinstance(one, BatchResult) for one in outcomes.values()), outcomes
    assert [one.promises for one in sessions] == [[500]] * 3
    on = table.existing()
    for master in MASTERS:
        log_id = str(master.log_id)
        assert '"writer"' not in str(on.domain(f"logtwin.{log_id}"))
        assert on.domain(f"logtwin.standing.{log_id}") == '{"first":0}'
        held = OneLog(plain, LOG.path(str(lake)), master.log_id).read()
        bad = master.bad if isinstance(master, Damaged) else ()
        kept = [row for row in master.records() if row["offset"] not in bad]
        assert [one.start for one in held.holes.ranges] == list(bad)
        ledger = [row for row in rows(lake / "ledger", "log_id", "start") if row["log_id"] == log_id]
        assert_ledger(ledger, kept)
        assert [r["offset"] for r in rows(lake / "log", "log_id", "offset") if r["log_id"] == log_id] == [
            row["offset"] for row in kept
        ]
    found = [(row["log_id"], row["start"], row["end"]) for row in rows(lake / "incidents", "log_id")]
    assert found == [(f"{ORDERS}/1", 12, 20), ("rocketmq/b", 100, 400)]
    assert [row["offset"] for row in rows(lake / "quarantine", "offset")] == [100, 250]  # a record in two pieces


def test_a_topic_goes_on(plain: SparkSession, lake: Path) -> None:
    before = {number: (state.offset, state.first) for number, state in topics_held(str(lake))[ORDERS].items()}
    assert before == dict.fromkeys(PARTITIONS, (30, 5))
    twin = Twin(plain, lake, PARTITIONS).opened()
    assert {twin.state(number).identity for number in PARTITIONS} == {TOPIC_ID}
    done = twin.takes(dict.fromkeys(PARTITIONS, (30, 40)))
    assert all(isinstance(one, BatchResult) for one in done.values()), done
    assert twin.offsets == dict.fromkeys(PARTITIONS, 40)
    assert twin.rows() == {
        0: list(range(5, 40)), 1: [*range(5, 12), *range(20, 40)], 2: list(range(6, 40, 2)),
    }  # fmt: skip
    found = rows(lake / "ledger", "log_id", "start")
    spans = {
        number: [(row["start"], row["end"]) for row in found if row["log_id"] == f"{ORDERS}/{number}"]
        for number in PARTITIONS
    }
    assert spans == {
        0: [(5, 10), (10, 30), (30, 40)], 1: [(5, 12), (20, 30), (30, 40)], 2: [(5, 8), (8, 30), (30, 40)],
    }  # fmt: skip
    held = OneLog(plain, KAFKA_LOG.path(str(lake)), PARTITIONS[1].log_id).read()
    assert held.holes.ranges == (span(0, 5), span(12, 20))


def test_who_claims_the_log_of_an_older_state_owns_it(plain: SparkSession, lake: Path) -> None:
    """The claim rewrites the domain that an older version's commits write, too."""
    table = OneLog(plain, LOG.path(str(lake)), named("a"))
    held = table.read()
    assert held.state is not None
    table.claim(this_writer())
    with pytest.raises(TakenOver):
        table.commit(held, held.state.moved_to(Offset(500), first=Offset(0), ledger=()))
