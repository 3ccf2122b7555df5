"""The logs of a master as a run has them: what is claimed, begun, proven, told, and what becomes of a loss."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.job import replicated_logs
from pipeline.job.master_watch import VIEW_EVERY_S
from pipeline.job.replicated_logs import LOOK_AGAIN_S, ReplicatedLogs
from pipeline.monitoring.run_state import FRESH_S
from sinks.batch.group import acknowledge
from sinks.batch.replica import Opening
from sinks.books.topic_states import topics_held
from sources.errors import (
    BelowMinimum,
    LogtwinError,
    MasterRefused,
    MasterUnreachable,
    Recreated,
    RepairPending,
    Rewritten,
)
from sources.group.standing import UNLISTED, Sighting
from sources.kafka.options import ReplicatedTopicOptions
from sources.master import Committed, Holding, Known, LogQuery, Master, Session
from sources.offsets import LogId, Offset, OffsetRange
from sources.options import ReadOptions
from sources.registry import FollowedOptions
from tests.pipeline.running import job_config
from tests.pipeline.waiting_clock import WaitingClock
from tests.sinks.accounts import incident
from tests.sinks.memory_master import MemoryMaster, RecordingSession, Rewriting
from tests.sinks.memory_partition import ORDERS, TOPIC_ID, MemoryPartition, MemoryTopic
from tests.sinks.plain_session import plain as plain

Opened = Callable[..., ReplicatedLogs]
TOPIC = {"id": str(ORDERS), "servers": "h:1"}
LOG = LogId("rocketmq", "broker-a")


@pytest.fixture
def opened(plain: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    def of(
        master: Master, others: Callable[[Iterable[LogId]], Mapping[LogId, str]] = lambda _: {}, **options: object
    ) -> ReplicatedLogs:
        """What a run makes of a master with these options."""
        monkeypatch.setattr(replicated_logs, "open_master", lambda options: in_shard(master, options))
        given: FollowedOptions = (
            ReplicatedTopicOptions.model_validate({**TOPIC, **options})
            if master.traits.gains_logs
            else ReadOptions.model_validate({"id": str(LOG), "path": "memory", **options})
        )
        shard = given.shard if isinstance(given, ReplicatedTopicOptions) else None
        config = job_config(tmp_path / "lake", path="memory").model_copy(update={"shard": shard})
        return ReplicatedLogs(plain, config, given, Opening(), others)

    return of


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WaitingClock:
    clock = WaitingClock()
    monkeypatch.setattr(replicated_logs, "time", clock)
    return clock


def in_shard(master: Master, options: FollowedOptions) -> Master:
    """What `open_master` makes of a topic, for a job with a session of its own."""
    if not isinstance(options, ReplicatedTopicOptions) or not isinstance(master, MemoryTopic) or not options.shard:
        return master
    return replace(master, shard=options.shard, session=RecordingSession())


def topic(*held: tuple[int, int], topic_id: str = TOPIC_ID) -> MemoryTopic:
    """Of partitions that hold these ranges."""
    return MemoryTopic(
        {
            number: MemoryPartition(number, tuple(range(start, end)), end, start=start, topic_id=topic_id)
            for number, (start, end) in enumerate(held)
        }
    )


def begun(opened: Opened, master: Master, **options: Any) -> ReplicatedLogs:
    logs = opened(master, **options)
    logs.claim()
    logs.resume()
    return logs


def positions(logs: ReplicatedLogs) -> dict[str, int]:
    return {log_id.rpartition("/")[2]: offset for log_id, offset in logs.offsets().items()}


def part(number: int) -> LogId:
    return LogId("kafka", f"{ORDERS.name}/{number}")


# A start


def test_nothing_is_claimed_of_a_master_that_does_not_answer(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryTopic, "poll", Mock(side_effect=MasterUnreachable("away")))
    with pytest.raises(MasterUnreachable):
        begun(opened, topic())
    assert topics_held(str(tmp_path / "lake")) == {}


@pytest.mark.parametrize(
    ("starting", "expected"), [("earliest", {"0": 3, "1": 0}), ("latest", {"0": 9, "1": 7})], ids=["earliest", "latest"]
)
def test_logs_that_may_be_more_begin_by_one_commit_and_stay_where_they_began(
    opened: Opened, tmp_path: Path, starting: str, expected: dict[str, int]
) -> None:
    begun(opened, topic((3, 9), (0, 7)), starting_offset=starting)
    version = DeltaTable(tmp_path / "lake" / "kafka_log").version()
    assert version == 1  # made, claimed and begun
    later = begun(opened, topic((4, 20), (0, 20)), starting_offset=starting)  # it has gone on meanwhile
    assert positions(later) == expected
    assert later.position() == sum(expected.values())


def test_all_logs_are_proven_by_one_question_and_told_by_one_call(opened: Opened) -> None:
    fresh, master = topic((3, 9), (0, 7)), topic((3, 9), (0, 7))
    begun(opened, fresh)
    begun(opened, master)
    known = {part(0): Known(TOPIC_ID, Offset(3)), part(1): Known(TOPIC_ID, Offset(0))}
    assert (fresh.checked, master.checked) == ([], [known])  # what has just begun has no history
    told = {part(0): Committed(Offset(3)), part(1): Committed(Offset(0))}
    assert (fresh.session.calls, master.session.calls) == ([told], [told])


def test_a_log_that_comes_is_begun_at_its_first_record(opened: Opened) -> None:
    master = topic((3, 9))
    logs = begun(opened, master, starting_offset="latest")
    master.partitions[1] = MemoryPartition(1, tuple(range(7)), 7)
    logs.hear({str(part(1)): Sighting(OffsetRange(Offset(0), Offset(7)), UNLISTED)}, 1, 0.0)
    assert logs.has_news
    logs.add()
    assert positions(logs) == {"0": 9, "1": 0}


def test_another_topic_of_this_name_is_found_before_anything_is_told(opened: Opened) -> None:
    begun(opened, topic((0, 9)))
    another = topic((0, 9), (0, 4), topic_id="another")
    logs = opened(another)
    with pytest.raises(Recreated):
        logs.claim()
    assert (another.session.calls, positions(logs)) == ([], {"0": 0})
    assert not logs.meet(Recreated("another", log=ORDERS))


def test_partitions_of_two_topics_wait_for_their_repair(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    master = topic((0, 9))
    logs = begun(opened, master)
    master.partitions.update(topic((0, 9), (0, 9)).partitions)
    held = {one.log_id: Holding(one.bounds(), "another") for one in master.partitions.values()}
    monkeypatch.setattr(logs, "_ask", lambda: held)
    logs.add()
    again = topic((0, 9), (0, 9))
    with pytest.raises(RepairPending, match=f"{TOPIC_ID}, another"):
        begun(opened, again)
    assert again.session.calls == []


# A share of them

SHARES = {1: ["1", "3"], 2: ["0", "2", "4", "5"]}  # of six partitions of this topic


def test_shards_have_each_partition_once_and_begin_them_together(opened: Opened, tmp_path: Path) -> None:
    """The shard that comes first begins all; another, later, does not leave out what came meanwhile."""
    first = begun(opened, topic(*[(3, 9)] * 6), starting_offset="latest", shard="1/2")
    second = begun(opened, topic(*[(3, 20)] * 6), starting_offset="latest", shard="2/2")
    assert [sorted(positions(one)) for one in (first, second)] == [*SHARES.values()]
    assert {*positions(first).values(), *positions(second).values()} == {9}
    assert DeltaTable(tmp_path / "lake" / "kafka_log").version() == 2  # made, claimed and begun, claimed


def test_a_partition_that_comes_into_a_share_of_none_is_begun_at_its_first_record(
    opened: Opened, clock: WaitingClock
) -> None:
    """The shard that has none of the topic's partitions asks again, because no planner looks for it."""
    master = topic((3, 9))
    begun(opened, master, starting_offset="latest", shard="2/2")
    logs = begun(opened, master, starting_offset="latest", shard="1/2")
    assert (positions(logs), logs.has_news) == ({}, False)
    master.partitions[1] = MemoryPartition(1, tuple(range(7)), 7)
    clock.sleep(VIEW_EVERY_S)
    assert logs.has_news
    logs.add()
    assert positions(logs) == {"1": 0}
    master.partitions[2], master.partitions[3] = (MemoryPartition(at, (), 0) for at in (2, 3))
    logs.hear({str(part(at)): Sighting(OffsetRange(Offset(0), Offset(0)), UNLISTED) for at in (2, 3)}, 1, 0.0)
    logs.add()
    assert positions(logs) == {"1": 0, "3": 0}


def test_what_another_job_holds_is_waited_for_and_the_rest_goes_on(
    opened: Opened, clock: WaitingClock, caplog: pytest.LogCaptureFixture
) -> None:
    master = topic(*[(0, 9)] * 6)
    whole = begun(opened, master)
    whole.group.skip(whole.replicas[str(part(3))], incident(0, 4))
    others = {part(3): "run r of shard 7/9"}
    shared = begun(opened, master, others=lambda _: others, shard="1/2")
    assert (positions(shared), shared.has_news) == ({"1": 0}, False)
    assert "kafka/prod/orders/3 is held by run r of shard 7/9, and is waited for" in caplog.text
    assert shared.session.acknowledged.keys() == {part(1)}  # the other job tells the group of its own
    clock.sleep(LOOK_AGAIN_S)
    caplog.clear()
    shared.add()
    assert (positions(shared), caplog.text) == ({"1": 0}, "")
    del others[part(3)]
    clock.sleep(LOOK_AGAIN_S)
    assert shared.has_news
    shared.add()
    assert positions(shared) == {"1": 0, "3": 4}  # from the table's position


def test_what_another_run_has_taken_is_let_go_and_taken_back_when_that_has_ended(
    opened: Opened, clock: WaitingClock
) -> None:
    """For a while also if nobody sees that run: or the two would take it from each other all the time."""
    master = topic(*[(0, 9)] * 6)
    older = begun(opened, master, shard="1/2")
    assert not older.let_go()
    newer = begun(opened, master, shard="1/1")
    assert older.let_go()
    older.claim()
    assert (positions(older), older.has_news) == ({}, False)
    clock.sleep(FRESH_S)
    older.add()
    assert sorted(positions(older)) == SHARES[1]
    assert newer.let_go()
    assert sorted(positions(newer)) == SHARES[2]


# A master with one log


class Told(RecordingSession):
    """It knows whether somebody reads in its turn."""

    is_away = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        self.is_away = True
        yield
        self.is_away = False


def a_log(sizes: tuple[int, ...] = (100,) * 10, **more: int) -> tuple[MemoryMaster, Told, list[bool]]:
    """A master, its session, and whether that was away each time that the master's bytes were asked for."""
    session, asked = Told(), list[bool]()

    class One(Rewriting):
        def raw(self, wanted: OffsetRange, *, committed: Offset | None) -> Iterator[memoryview]:  # type: ignore[override]
            asked.append(session.is_away)
            return super().raw(wanted, committed=committed)

        def open_session(self, prove: Callable[[], None] | None = None) -> Session:
            return session

    return One(sizes, since=more.get("since", sum(sizes))), session, asked


def test_of_nothing_there_is_no_proof_and_no_promise(opened: Opened) -> None:
    master, session, asked = a_log()
    logs = begun(opened, master)
    assert (logs.position(), asked, session.readings, session.calls) == (None, [], 0, [])


def test_it_is_proven_in_the_turn_of_a_reader_before_it_is_told(opened: Opened) -> None:
    """To a master that counts connections the proof's would be another replica's, at each restart."""
    master, _, _ = a_log()
    logs = begun(opened, master)
    logs.group.bring(logs.replicas[str(LOG)], OffsetRange(Offset(0), Offset(500)))
    master, session, asked = a_log()
    begun(opened, master)
    assert (asked, session.calls) == ([True], [{LOG: Committed(Offset(500))}])
    other, session, _ = a_log(since=0)
    with pytest.raises(Rewritten):
        begun(opened, other)
    assert session.calls == []


# A loss


def test_what_one_partition_lost_is_passed_there_and_the_others_stay(opened: Opened) -> None:
    logs = begun(opened, topic((0, 9), (0, 9), (0, 9)), on_loss="record")
    gone = topic((5, 9), (0, 9), (7, 9))
    logs.master.partitions.update(gone.partitions)  # type: ignore[attr-defined]
    assert logs.meet(BelowMinimum("gone", log=part(0), offset=0))  # retention seldom takes from one alone
    assert positions(logs) == {"0": 5, "1": 0, "2": 7}
    assert logs.losses.counts == {"below_minimum": 2}
    acknowledge(logs.replicas.values())
    assert logs.session.acknowledged == {part(0): 5, part(1): 0, part(2): 7}


def test_of_one_partition_alone_a_loss_is_passed(opened: Opened) -> None:
    logs = begun(opened, topic((0, 9), (0, 9), (0, 9)), on_loss="record")
    gone = topic((5, 9), (0, 9), (7, 9))
    logs.master.partitions.update(gone.partitions)  # type: ignore[attr-defined]
    lost = [BelowMinimum("gone", log=part(at), offset=0) for at in (0, 2)]
    logs.ask_for(lost)
    assert logs.meet_alone(lost[0])
    assert positions(logs) == {"0": 5, "1": 0, "2": 0}


def test_a_start_leaves_out_what_has_no_answer_or_another_history(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the first of a run, when nothing is open yet. All are claimed; the others are proven and told."""
    begun(opened, topic(*[(0, 9)] * 4))
    master = topic(*[(0, 9)] * 4)
    lost = master.parted[part(3)] = BelowMinimum("gone", log=part(3), offset=0)
    unanswered = {**master.poll({}), part(1): MasterRefused("no leader")}
    asked: list[set[LogId]] = []

    def held(_: MemoryTopic, logs: Mapping[LogId, LogQuery]) -> Mapping[LogId, Holding | LogtwinError]:
        asked.append({*logs})
        return unanswered

    monkeypatch.setattr(MemoryTopic, "poll", held)
    logs = opened(master)
    for _ in range(2):  # a topic is started again, too
        logs.claim()
        assert logs.resume({str(part(2))}) == {str(part(3)): lost}
        assert list(master.checked.pop()) == [part(0), part(3)]
        assert [list(call) for call in master.session.calls] == [[part(0)]]
        del master.session.calls[:]
    assert positions(logs) == {str(at): 0 for at in range(4)}
    assert asked == [every := {part(at) for at in range(4)}] * 2
    opened(master).claim(waits=True)  # as with --available-now: first for all of them
    assert asked[2:] == [set(), every]


def test_a_partition_that_comes_without_a_leader_begins_at_its_first_record_once_it_has_one(
    opened: Opened, clock: WaitingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not those that have begun can be asked for then."""
    master = topic((3, 9))
    begun(opened, master, starting_offset="latest")
    master.partitions.update({1: MemoryPartition(1, tuple(range(7)), 7), 2: MemoryPartition(2, (), 0)})
    held, refused = master.poll({}), MasterRefused("no leader")
    found = {**held, part(1): refused}
    monkeypatch.setattr(MemoryTopic, "poll", lambda *_: found)
    logs = begun(opened, master, starting_offset="latest")
    assert (positions(logs), logs.has_news) == ({"0": 9, "2": 0}, False)
    found |= {part(0): refused, part(1): held[part(1)]}
    clock.sleep(LOOK_AGAIN_S)
    assert logs.has_news
    logs.add()
    assert positions(logs) == {"0": 9, "1": 0, "2": 0}


def test_a_loss_that_may_not_be_passed_stops_all_and_moves_none(opened: Opened) -> None:
    logs = begun(opened, topic((0, 9), (0, 9)))
    logs.master.partitions.update(topic((5, 9), (0, 9)).partitions)  # type: ignore[attr-defined]
    assert not logs.meet(BelowMinimum("gone", log=part(0), offset=0))
    assert positions(logs) == {"0": 0, "1": 0}
