"""The logs of a master as a run has them: what is claimed, begun, proven, told, and what becomes of a loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.job import replicated_logs
from pipeline.job.replicated_logs import ReplicatedLogs
from sinks.batch.landing import acknowledge
from sinks.batch.replica import Opening
from sinks.books.topic_states import topics_held
from sources.errors import BelowMinimum, MasterUnreachable, Recreated, RepairPending, Rewritten
from sources.group.seen import UNLISTED, Sighting
from sources.kafka.options import ReplicatedTopicOptions
from sources.master import Committed, Holding, Known, LogQuery, Master, Session
from sources.offsets import LogId, Offset, OffsetRange
from sources.options import ReadOptions
from sources.registry import FollowedOptions
from tests.pipeline.running import job_config
from tests.sinks.memory_master import MemoryMaster, RecordingSession, Rewriting
from tests.sinks.memory_partition import ORDERS, TOPIC_ID, MemoryPartition, MemoryTopic
from tests.sinks.plain_session import plain as plain

Opened = Callable[..., ReplicatedLogs]
TOPIC = {"id": str(ORDERS), "servers": "h:1"}
LOG = LogId("rocketmq", "broker-a")


@pytest.fixture
def opened(plain: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    def of(master: Master, **options: object) -> ReplicatedLogs:
        """What a run makes of a master with these options."""
        monkeypatch.setattr(replicated_logs, "open_master", lambda _: master)
        given: FollowedOptions = (
            ReplicatedTopicOptions.model_validate({**TOPIC, **options})
            if master.traits.gains_logs
            else ReadOptions.model_validate({"id": str(LOG), "path": "memory", **options})
        )
        return ReplicatedLogs(plain, job_config(tmp_path / "lake", path="memory"), given, Opening())

    return of


def topic(*held: tuple[int, int], topic_id: str = TOPIC_ID) -> MemoryTopic:
    """Of partitions that hold these ranges."""
    return MemoryTopic(
        {
            number: MemoryPartition(number, tuple(range(start, end)), end, start=start, topic_id=topic_id)
            for number, (start, end) in enumerate(held)
        }
    )


def begun(opened: Opened, master: Master, **options: object) -> ReplicatedLogs:
    logs = opened(master, **options)
    logs.claim()
    logs.resume()
    return logs


def positions(logs: ReplicatedLogs) -> dict[str, int]:
    return {log_id.rpartition("/")[2]: offset for log_id, offset in logs.offsets().items()}


def part(number: int) -> LogId:
    return LogId("kafka", f"{ORDERS.name}/{number}")


# A start


def test_nothing_is_claimed_of_a_master_that_does_not_answer(opened: Opened, tmp_path: Path) -> None:
    class Away(MemoryTopic):
        def held(self, asked: Mapping[LogId, LogQuery]) -> Mapping[LogId, Holding]:
            raise MasterUnreachable("away")

    with pytest.raises(MasterUnreachable):
        begun(opened, Away({}))
    assert topics_held(str(tmp_path / "lake")) == {}


@pytest.mark.parametrize(
    ("starting", "expected"), [("earliest", {"0": 3, "1": 0}), ("latest", {"0": 9, "1": 7})], ids=["earliest", "latest"]
)
def test_logs_that_may_be_more_begin_by_one_commit_and_stay_where_they_began(
    opened: Opened, tmp_path: Path, starting: str, expected: dict[str, int]
) -> None:
    begun(opened, topic((3, 9), (0, 7)), starting_offset=starting)
    version = DeltaTable(tmp_path / "lake" / "kafka_log").version()
    assert version == 2  # made, claimed, begun
    later = begun(opened, topic((4, 20), (0, 20)), starting_offset=starting)  # it has gone on meanwhile
    assert positions(later) == expected
    assert later.position() == sum(expected.values())


def test_all_logs_are_proven_by_one_question_and_told_by_one_call(opened: Opened) -> None:
    begun(opened, topic((3, 9), (0, 7)))
    master = topic((3, 9), (0, 7))
    begun(opened, master)
    known = {part(0): Known(TOPIC_ID, Offset(3)), part(1): Known(TOPIC_ID, Offset(0))}
    assert master.checked == [known]
    assert master.session.calls == [{part(0): Committed(Offset(3)), part(1): Committed(Offset(0))}]


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
    held = {log_id: replace(one, identity="another") for log_id, one in master.held({}).items()}
    monkeypatch.setattr(logs, "_ask", lambda: held)
    logs.add()
    again = topic((0, 9), (0, 9))
    with pytest.raises(RepairPending, match=f"{TOPIC_ID}, another"):
        begun(opened, again)
    assert again.session.calls == []


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
    begun(opened, master).replicas[str(LOG)].bring(OffsetRange(Offset(0), Offset(500)))
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


def test_a_loss_that_may_not_be_passed_stops_all_and_moves_none(opened: Opened) -> None:
    logs = begun(opened, topic((0, 9), (0, 9)))
    logs.master.partitions.update(topic((5, 9), (0, 9)).partitions)  # type: ignore[attr-defined]
    assert not logs.meet(BelowMinimum("gone", log=part(0), offset=0))
    assert positions(logs) == {"0": 0, "1": 0}
