"""A topic's partitions as a group of logs: batches, what a kill leaves, what one partition meets, who owns them."""

from pathlib import Path
from shutil import rmtree

import pytest
from pyspark.sql import SparkSession

from sinks.batch.proof import BatchResult, BatchStep
from sinks.batch.replica import open_together
from sinks.books.bookkeeping import Bookkeeping
from sinks.state.fence import this_writer
from sinks.state.positions import Positions
from sinks.tables import KAFKA_LOG
from sources.errors import (
    LogtwinError,
    MasterSilent,
    ReplicaError,
    TakenOver,
)
from sources.master import Committed
from sources.offsets import LogId, Offset, partition_log
from tests.around import at_each, at_first
from tests.sinks.killed import Killed, killed
from tests.sinks.memory_partition import (
    ORDERS,
    FailingPartition,
    MemoryPartition,
    epoch_before,
    partitions,
)
from tests.sinks.one_log import OneLog
from tests.sinks.topic_batches import Twin, expected

TOPIC = partitions(tuple(range(40)), (), (0, 1, 2, 7, 19, 20, 33), end=40)
FULL = partitions(*[tuple(range(40))] * 3, end=40)
"""Of splits that are all as large the tasks of two cores have the first and the last, and the one between."""


def at(offset: int) -> Committed:
    return Committed(Offset(offset), epoch_before(offset))


def brought(outcomes: dict[int, BatchResult | LogtwinError]) -> dict[int, tuple[int, int]]:
    """The range that each partition was brought on by, of those that nothing was wrong with."""
    found = {number: one.range for number, one in outcomes.items() if isinstance(one, BatchResult)}
    return {number: (one.start, one.end) for number, one in found.items()}


def errors(outcomes: dict[int, BatchResult | LogtwinError]) -> dict[int, tuple[type[LogtwinError], str, int | None]]:
    found = {number: one for number, one in outcomes.items() if isinstance(one, LogtwinError)}
    assert all(one.log == str(partition_log(ORDERS, number)) for number, one in found.items())
    return {number: (type(one), str(one.log)[-1], one.offset) for number, one in found.items()}


# --- together


def test_a_partition_whose_leader_is_too_slow_for_a_group_gets_more_time(plain: SparkSession, tmp_path: Path) -> None:
    """It is never read alone, so the time of a group would never be enough."""
    silent = FailingPartition.like(FULL[0], error=MasterSilent("the leader does not answer"))
    twin = Twin(plain, tmp_path, {0: silent, 1: FULL[1]}).opened()
    given = []
    for _ in range(5):
        given.append([one.log_writer(1.0).patience_s for one in twin.replicas.values()])
        twin.takes({0: (0, 10), 1: (0, 10)})
    assert given == [[1.0, 1.0], [2.0, 1.0], [4.0, 1.0], [8.0, 1.0], [8.0, 1.0]]
    twin.replicas[0].master = FULL[0]
    twin.takes({0: (0, 10)})
    assert twin.replicas[0].log_writer(1.0).patience_s == 1.0


def test_batches_of_several_partitions_are_one_commit_each(plain: SparkSession, tmp_path: Path) -> None:
    twin = Twin(plain, tmp_path, TOPIC).opened()
    before = twin.version()
    twin.takes({0: (0, 25), 1: (0, 10), 2: (0, 20)}, split=10)
    assert twin.version() == before + 1
    assert twin.steps == [BatchStep.FILES, BatchStep.COMMIT, BatchStep.ACKNOWLEDGE, BatchStep.LEDGER]
    assert twin.offsets == {0: 25, 1: 10, 2: 20}
    told = {partition_log(ORDERS, number): at(offset) for number, offset in ((0, 25), (1, 10), (2, 20))}
    assert twin.session.calls == [told]  # by one call for all
    # an overlap in one, a replay in another, one that is not in it, one that was added later
    topic = {**TOPIC, 3: MemoryPartition(3, (3, 4), 40)}
    later = Twin(plain, tmp_path, topic).opened()
    before = later.version()
    outcomes = later.takes({0: (20, 40), 1: (0, 10), 3: (0, 5)})
    assert later.version() == before + 1
    assert later.offsets == {0: 40, 1: 10, 2: 20, 3: 5}
    assert later.rows() == expected(topic, {0: (0, 40), 1: (0, 10), 2: (0, 20), 3: (0, 5)})
    assert brought(outcomes) == {0: (25, 40), 1: (10, 10), 3: (0, 5)}
    assert later.ledger() == [
        (0, 0, 10, 10), (0, 10, 20, 10), (0, 20, 25, 5), (0, 25, 40, 15), (1, 0, 10, 0), (2, 0, 10, 4), (2, 10, 20, 1),
        (3, 0, 5, 2),
    ]  # fmt: skip


# --- what one partition meets is its own


def test_others_in_the_file_of_a_lost_partition_are_committed(
    plain: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is taken between the proof and the commit: what is proven by then is in files that are written."""
    built_on: list[int] = []

    def take(step: BatchStep) -> None:
        if step is BatchStep.FILES and twin.offsets[0] == 0:
            OneLog(plain, KAFKA_LOG.path(str(tmp_path)), FULL[0].log_id).claim(this_writer())

    twin = Twin(plain, tmp_path, FULL, on_step=take).opened()
    before = twin.version()
    at_each(monkeypatch, Positions, "_attempt", lambda _, on, moves: built_on.append(on.version))
    outcomes = twin.takes(dict.fromkeys(range(3), (0, 10)))
    assert built_on == [before, before + 1]  # not again on what is known to be stale
    assert errors(outcomes) == {0: (TakenOver, "0", 0)}
    assert brought(outcomes) == {1: (0, 10), 2: (0, 10)}
    assert twin.rows() == expected(FULL, {1: (0, 10), 2: (0, 10)})
    assert twin.ledger() == [(1, 0, 10, 10), (2, 0, 10, 10)]
    assert brought(twin.takes({1: (10, 20), 2: (10, 20)})) == {1: (10, 20), 2: (10, 20)}
    assert twin.rows() == expected(FULL, {1: (0, 20), 2: (0, 20)})
    assert twin.promises == {0: [], 1: [10, 20], 2: [10, 20]}


# --- kills, and who owns them


def test_partitions_are_claimed_and_begin_in_one_commit(
    plain: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that none begins elsewhere than the others, whenever a kill comes."""

    Twin(plain, tmp_path, {7: MemoryPartition(7, (), 40)}).opened()  # the table is there
    twin = Twin(plain, tmp_path, TOPIC)
    before = twin.version()
    with monkeypatch.context() as patched:
        patched.setattr(Bookkeeping, "settle", killed)
        with pytest.raises(Killed):
            twin.opened(begins_at=30, identity="the topic")
    assert twin.version() == before + 1
    again = Twin(plain, tmp_path, TOPIC).opened(begins_at=35, identity="not that")
    assert again.version() == before + 2
    assert again.offsets == {0: 30, 1: 30, 2: 30}
    assert {(again.state(at).first, again.state(at).identity, again.state(at).mark) for at in TOPIC} == {
        (Offset(30), "the topic", None)
    }


def test_whichever_shard_comes_first_begins_the_whole_topic(plain: SparkSession, tmp_path: Path) -> None:
    """Of a new topic the later shard has claimed its partition. It has other bounds by then, and a partition more."""
    early, late = (Twin(plain, tmp_path, {at: TOPIC[at] for at in numbers}) for numbers in ((0, 1), (2,)))
    open_together([*late.replicas.values()])
    before, writer = late.version(), late.state(2).writer

    def starts(at: int, *more: MemoryPartition) -> dict[LogId, Offset]:
        return {one.log_id: Offset(at) for one in (*TOPIC.values(), *more)}

    assert early.begin(starts(20)) == []
    begun = OneLog(plain, KAFKA_LOG.path(str(tmp_path)), TOPIC[2].log_id).state()
    assert (early.version(), begun.offset, begun.writer) == (before + 1, 20, writer)
    came = MemoryPartition(3, (), 40)
    late, grown = Twin(plain, tmp_path, {2: TOPIC[2]}), Twin(plain, tmp_path, {3: came})
    assert late.begin(starts(30, came)) == []  # it finds its partition begun
    assert grown.begin(starts(30, came)) == [str(came.log_id)]  # it was not there when the topic began
    assert (early.offsets, late.offsets, grown.offsets) == ({0: 20, 1: 20}, {2: 20}, {3: 0})
    assert late.state(2).writer == late.replicas[2].opened().writer
    assert early.takes({0: (20, 30)})[0] is not None
    assert late.takes({2: (20, 30)})[2] is not None
    assert (early.offsets[0], late.offsets[2]) == (30, 30)


def test_of_two_jobs_that_begin_a_topic_at_once_the_first_decides(
    plain: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one finds it fresh, and by then a ledger with rows of it, which is no contradiction."""
    other = Twin(plain, tmp_path, TOPIC)
    at_first(monkeypatch, Bookkeeping, "check", lambda: other.opened(begins_at=20).takes({0: (20, 30)}))
    twin = Twin(plain, tmp_path, TOPIC).opened(begins_at=40)
    assert twin.offsets == {0: 30, 1: 20, 2: 20}
    assert errors(other.takes({1: (20, 30)})) == {1: (TakenOver, "1", 20)}
    assert brought(twin.takes({1: (20, 30)})) == {1: (20, 30)}


def test_a_topic_whose_table_was_lost_does_not_begin_behind_its_ledger(plain: SparkSession, tmp_path: Path) -> None:
    Twin(plain, tmp_path, TOPIC).opened(begins_at=20).takes({0: (20, 30)})
    rmtree(tmp_path / KAFKA_LOG.name)
    for _ in range(2):
        with pytest.raises(ReplicaError, match="lost its newest commits") as caught:
            Twin(plain, tmp_path, TOPIC).opened(begins_at=40)
        assert caught.value.log == str(TOPIC[0].log_id)
