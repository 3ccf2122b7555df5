"""A topic asked through a script: its history by few questions, and whether its group may be used."""

import pickle
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sources.access.security import Secret
from sources.bounds import EARLIEST
from sources.errors import (
    AboveMaximum,
    BelowMinimum,
    ConfigurationError,
    LogtwinError,
    MasterRefused,
    MasterUnreachable,
    Recreated,
    Rewritten,
)
from sources.group import masters, standing
from sources.group.masters import MastersFile
from sources.group.offsets import GroupOffset
from sources.group.poller import Poller, PollRequest, PollResult
from sources.group.standing import ListedLog, Standing
from sources.kafka.cluster.settings import Isolation, KafkaSettings
from sources.kafka.format.columns import canonical
from sources.kafka.log import KafkaLog
from sources.kafka.options import RECORD_BYTES, ReplicatedTopicOptions
from sources.kafka.session import GroupSession
from sources.kafka.topic import KafkaTopic, open_topic
from sources.master import Chunk, Committed, Holding, Known, LogQuery, MasterLog
from sources.offsets import LogId, Offset, topic_and_number
from sources.options import ReadOptions, parse_options
from sources.shards import Shard
from sources.sole_log import SilentSession
from tests.patience import PATIENCE_S
from tests.sources.kafka.group_answers import ALICE, committed, coordinator, described
from tests.sources.kafka.scripted_cluster import (
    NOT_LEADER,
    OTHER_ID,
    TOPIC_ID,
    Play,
    ScriptedCluster,
    batch,
    epoch_ends_of,
    fetched,
    metadata,
    offsets,
    topic,
)
from tests.sources.scripted_log import planning
from tests.spans import span

P0 = LogId("kafka", "c/t/0")
TWO = metadata(topic(leaders=[(1, 4), (1, 4)]))


def a_topic(**options: Any) -> KafkaTopic:
    return KafkaTopic(settings=KafkaSettings(servers=("h:1",)), cluster="c", topic="t", **{"patience_ms": 0} | options)


def at(*positions: tuple[int, int | None]) -> dict[LogId, Known]:
    return {
        LogId("kafka", f"c/t/{number}"): Known(str(TOPIC_ID), Offset(offset), epoch)
        for number, (offset, epoch) in enumerate(positions)
    }


def names(cluster: ScriptedCluster) -> list[str]:
    return [type(request).__name__ for request, _ in cluster.asked]


def test_the_history_of_all_partitions_is_checked_by_one_question_to_their_leader(play: Play) -> None:
    cluster = play(TWO, offsets(0, 5), offsets(100, 50), epoch_ends_of({0: (3, 90), 1: (4, 50)}))
    a_topic().check_history(at((90, 3), (50, 4)))
    assert cluster.is_done
    assert cluster.connections == 1
    assert names(cluster) == [
        "MetadataRequest", "ListOffsetsRequest", "ListOffsetsRequest", "OffsetForLeaderEpochRequest"
    ]  # fmt: skip
    assert {request.isolation_level for request, _ in cluster.asked[1:3]} == {Isolation.READ_UNCOMMITTED.value}


def test_a_position_without_an_epoch_is_checked_by_what_is_held_alone(play: Play) -> None:
    cluster = play(TWO, offsets(0), offsets(100))
    a_topic().check_history(at((100, None)))
    assert [one.partition_index for one in cluster.asked[1][0].topics[0].partitions] == [0]
    assert cluster.is_done


def found_of(errors: Mapping[LogId, LogtwinError]) -> dict[int, type[LogtwinError]]:
    """The kind of error of each partition; each error names its log."""
    assert [error.log for error in errors.values()] == [str(log_id) for log_id in errors]
    return {topic_and_number(log_id)[1]: type(error) for log_id, error in errors.items()}


@pytest.mark.parametrize(
    ("positions", "ends", "found"),
    [
        (at((90, 3), (4, 4)), {0: (3, 90)}, {1: BelowMinimum}),
        (at((90, 3), (51, 4)), {0: (3, 90), 1: (4, 50)}, {1: AboveMaximum}),
        (at((90, 3), (50, 4), (1, 1)), {0: (3, 90), 1: (4, 50)}, {2: AboveMaximum}),
        (at((90, 3), (50, 4)), {0: (3, 90), 1: (4, 49)}, {1: Rewritten}),
        (at((101, 3), (50, 4)), {0: (3, 90), 1: (2, 50)}, {0: AboveMaximum, 1: Rewritten}),
    ],
)
def test_what_is_no_longer_the_history_is_an_error_of_the_partition_alone(
    play: Play, positions: dict[LogId, Known], ends: dict[int, tuple[int, int]], found: dict[int, type[LogtwinError]]
) -> None:
    play(TWO, offsets(0, 5), offsets(100, 50), epoch_ends_of(ends))
    assert found_of(a_topic().check_history(positions)) == found


def test_a_partition_without_a_leader_keeps_no_other_from_starting_unless_the_topic_is_new(play: Play) -> None:
    one_led = metadata(topic(leaders=[(1, 4), (-1, 4)]))
    play(one_led, offsets(0), offsets(100), epoch_ends_of({0: (3, 90)}))
    assert found_of(a_topic().check_history(at((90, 3), (50, 4)))) == {1: MasterRefused}
    play(one_led, offsets(0), offsets(100))
    held, refused = a_topic().poll({P0: LogQuery()}).values()
    assert held == Holding(span(0, 100), str(TOPIC_ID))
    assert isinstance(refused, MasterRefused)
    for leaders, asked_of in (([(1, 4), (-1, 4)], {}), ([(-1, 4)], {P0: LogQuery()})):  # it begins; all have none
        play(metadata(topic(leaders=leaders)), offsets(0), offsets(100))
        with pytest.raises(MasterRefused):
            a_topic().poll(asked_of)


def test_what_no_partition_can_say_of_its_history_is_asked_again(play: Play) -> None:
    lost = epoch_ends_of({0: (3, 90)})
    lost.topics[0].partitions[0].error_code = NOT_LEADER
    cluster = play(TWO, offsets(0), offsets(100), lost, TWO, offsets(0), offsets(100), epoch_ends_of({0: (3, 90)}))
    assert a_topic(patience_ms=60_000).check_history(at((90, 3))) == {}
    assert cluster.is_done


def test_of_a_share_no_other_partitions_are_asked_for(play: Play) -> None:
    six = metadata(topic(leaders=[(1, 4)] * 6))
    of_each = {1: [2, 4], 2: [0, 1, 3, 5]}
    for number, ours in of_each.items():
        cluster = play(six, offsets(*[0] * 6), offsets(*[9] * 6))
        held = a_topic(shard=Shard(number, 2)).poll({})
        assert [log_id.name for log_id in held] == [f"c/t/{at}" for at in ours]
        asked = [[one.partition_index for one in request.topics[0].partitions] for request, _ in cluster.asked[1:]]
        assert asked == [ours, ours]
    play(metadata(topic(leaders=[(1, 4)])))
    assert a_topic(shard=Shard(1, 2)).poll({}) == {}


def test_what_breaks_is_asked_again_from_the_start(play: Play) -> None:
    cluster = play(TWO, MasterUnreachable("gone"), TWO, offsets(0), offsets(100), epoch_ends_of({0: (3, 90)}))
    a_topic(patience_ms=60_000).check_history(at((90, 3)))
    assert (cluster.connections, cluster.is_done) == (2, True)
    play(MasterUnreachable("gone"))
    with pytest.raises(MasterUnreachable) as raised:
        a_topic().check_history(at((90, 3)))
    assert raised.value.log == "kafka/c/t"


def test_a_group_that_others_consume_with_is_refused_naming_the_topic_and_them(play: Play) -> None:
    play(coordinator(), described("Stable", (ALICE,)))
    with pytest.raises(ConfigurationError, match="alice-1") as raised:
        a_topic(group="g").check()
    assert raised.value.log == "kafka/c/t"
    free = play(MasterUnreachable("gone"), coordinator(), described("Empty"))
    a_topic(group="g", patience_ms=60_000).check()
    assert free.is_done
    a_log(group="g").check(is_replica=False)  # asks nobody
    assert free.connections == 2


def test_without_a_group_nobody_is_asked_and_nothing_acknowledged(play: Play) -> None:
    cluster = play()
    a_topic().check()
    session = a_topic().open_session()
    assert isinstance(session, SilentSession)
    session.acknowledge({P0: Committed(Offset(90), 3)})
    session.close()
    assert (session.acknowledged, session.state.acknowledged, session.failure) == ({}, None, None)
    with closing(a_topic(group="g").open_session()) as session:
        assert isinstance(session, GroupSession)
    assert cluster.connections == 0


def test_what_the_group_has_committed_is_asked_of_its_coordinator(play: Play) -> None:
    cluster = play(TWO, coordinator(), committed(p0=7, p1=-1))
    assert a_topic(group="g").acknowledged_by_master() == {P0: 7}
    assert names(cluster) == ["MetadataRequest", "FindCoordinatorRequest", "OffsetFetchRequest"]
    assert [one.partition_indexes for one in cluster.asked[-1][0].topics] == [[0, 1]]
    assert (cluster.connections, cluster.is_done) == (1, True)
    nobody = play()
    assert a_topic().acknowledged_by_master() == {}
    assert nobody.connections == 0


@pytest.mark.parametrize(
    ("patience_s", "connect_ms", "request_ms", "patience_ms"),
    [(2.0, 2000, 2000, 2000), (0.1, 1000, 1000, 1000), (8.0, 5000, 8000, 8000), (600.0, 5000, 20_000, 30_000)],
)
def test_in_a_hurry_waits_are_shorter_and_nothing_is_tried_twice(
    patience_s: float, connect_ms: int, request_ms: int, patience_ms: int
) -> None:
    """But a second is always left: a leader may wait half a second itself for something to send."""
    patient = a_topic(patience_ms=30_000, group="g", split_offsets=7)
    assert (patient.settings.connect_timeout_ms, patient.settings.request_timeout_ms) == (5000, 20_000)
    hurried = patient.hurried(patience_s)
    settings = hurried.settings
    assert (settings.connect_timeout_ms, settings.request_timeout_ms, settings.connect_attempts) == (
        connect_ms, request_ms, 1,
    )  # fmt: skip
    assert hurried == replace(patient, settings=settings, patience_ms=patience_ms)


# a partition as a master log: what is asked of whom, and what the contract promises of it


HERE = metadata(topic())
THREE = metadata(topic(leaders=[(1, 0)] * 3))


def a_log(number: int = 0, *, known: Known | None = None, **options: Any) -> KafkaLog:
    given = {"settings": KafkaSettings(servers=("h:1",)), "cluster": "c", "topic": "t", "patience_ms": 0} | options
    of_topic = KafkaTopic(**given)  # type: ignore[arg-type] # of a test
    return KafkaLog(topic=of_topic, number=number, known=known or Known())


def read(log: MasterLog, start: int, end: int) -> list[Chunk]:
    found = list(log.read(span(start, end), committed=None, boundary=True))
    assert all(isinstance(piece, Chunk) for piece in found)
    return [piece for piece in found if isinstance(piece, Chunk)]


def epochs_asked(cluster: ScriptedCluster) -> list[tuple[int, int]]:
    """Of each fetch where it begins, and the epoch that goes along; -1 for none."""
    fetches = [request.topics[0].partitions[0] for request, _ in cluster.asked if request.name == "FetchRequest"]
    return [(one.fetch_offset, one.last_fetched_epoch) for one in fetches]


def test_it_says_what_it_is_and_travels() -> None:
    log: MasterLog = a_log(2, known=Known(str(TOPIC_ID), Offset(7), 3), group="g")
    assert str(log.log_id) == "kafka/c/t/2"
    assert (log.address, a_log(settings=KafkaSettings(servers=("h:1", "h:2"))).address) == ("h:1", "h:1,h:2")
    assert pickle.loads(pickle.dumps(log)) == log  # noqa: S301 - our own


def test_it_is_cut_by_offsets_and_its_size_is_a_guess() -> None:
    log = a_log(split_offsets=10)
    assert log.plan(span(5, 28), cores=7) == (span(5, 15), span(15, 25), span(25, 28))
    assert (log.size_bytes(span(5, 28)), log.split_bytes) == (23 * RECORD_BYTES, 10 * RECORD_BYTES)
    assert [log.boundary_after(Offset(at), Offset(9)) for at in (3, 9, 12)] == [3, 9, 9]


@pytest.mark.parametrize(("max_bytes", "end"), [(1, 6), (RECORD_BYTES, 6), (3 * RECORD_BYTES, 8), (10**9, 28)], ids=str)
def test_a_batch_has_at_least_one_offset_and_ends_at_the_end(max_bytes: int, end: int) -> None:
    assert a_log().end_of_batch(Offset(5), Offset(28), max_bytes) == end


def test_the_epoch_goes_along_with_what_begins_at_the_position_and_nowhere_else(play: Play) -> None:
    log = a_log(known=Known(str(TOPIC_ID), Offset(12), 1))
    cluster = play(HERE, fetched(batch(10, 5, epoch=1)), fetched(batch(15, 5, epoch=2)))
    chunks = read(log, 12, 20)
    assert [(chunk.covered, chunk.mark) for chunk in chunks] == [(span(12, 15), 1), (span(15, 20), 2)]
    assert epochs_asked(cluster) == [(12, 1), (15, 1)]
    assert cluster.connections == 1  # which topic is meant is known
    cluster = play(HERE, fetched(batch(10, 10, epoch=1)))
    read(log, 13, 20)
    assert epochs_asked(cluster) == [(13, -1)]


def test_what_is_read_in_the_same_way_is_read_together() -> None:
    orders, refunds = (a_log(topic=name).reader for name in ("orders", "refunds"))
    assert (orders == refunds, hash(orders) == hash(refunds)) == (True, True)
    assert a_log(1).reader == orders
    assert a_log().hurried(2.0).reader != orders
    assert a_log(chunk_bytes=7).reader != orders
    log = a_log(known=Known(str(TOPIC_ID), Offset(0), None), patience_ms=30_000)
    readers = [one.reader for one in (log, log.hurried(2.0), log.hurried(60.0))]  # in a hurry no longer than that
    assert [(one.patience_ms, one.patience_s) for one in readers] == [(30_000, None), (2000, 2.0), (30_000, 60.0)]


def test_raw_bytes_are_restored_from_the_records(play: Play) -> None:
    log = a_log(known=Known(str(TOPIC_ID), Offset(3), None))
    play(HERE, fetched(batch(0, 10)))
    (chunk,) = read(log, 3, 8)
    play(HERE, fetched(batch(0, 5)), fetched(batch(5, 5)))
    raw = b"".join(bytes(piece) for piece in log.raw(span(3, 8), committed=None))
    assert raw == bytes(chunk.raw) == log.restore(chunk.records.select(list(log.traits.restored_from)))
    assert raw == canonical(chunk.records)
    assert log.lengths(chunk.records.select(list(log.traits.measured_by))).sum() == len(raw)


def test_the_bounds_are_those_of_its_partition_and_its_topic(play: Play) -> None:
    play(THREE, offsets(0, 3, 5), offsets(10, 13, 15))
    assert a_log(1).bounds() == span(3, 13)
    play(THREE, offsets(0, 3, 5), offsets(10, 13, 15))
    with pytest.raises(ConfigurationError, match="no such partition") as caught:
        a_log(3).bounds()
    assert (caught.value.log, caught.value.found) == ("kafka/c/t/3", "3")
    play(THREE)
    with pytest.raises(Recreated):
        a_log(known=Known(str(OTHER_ID), None, None)).bounds()


# what the planner of a group learns of a topic: all partitions that it asks about by one look


OPTIONS = {"id": "kafka/c/t", "servers": "h:1"}
HELD = (THREE, offsets(0, 3, 5), offsets(10, 13, 15))


def a_poller() -> Poller:
    of_topic = open_topic(parse_options(ReplicatedTopicOptions, OPTIONS, where="test"))
    return Poller(replace(of_topic, patience_ms=0), EARLIEST)


def asked(positions: Mapping[int, int | None], identity: object = TOPIC_ID) -> dict[str, PollRequest]:
    return {
        f"kafka/c/t/{number}": PollRequest(ListedLog(None if at is None else Offset(at), 0, str(identity)), None)
        for number, at in positions.items()
    }


def test_its_logs_are_the_partitions_of_its_topic() -> None:
    poller = a_poller()
    log = poller.log("kafka/c/t/2")
    assert isinstance(log, KafkaLog)
    assert (str(log.log_id), log.number) == ("kafka/c/t/2", 2)
    for other in ("kafka/c/u/2", "kafka/d/t/2", "kafka/c/tt/0"):
        assert poller.log(other) is None
    assert (poller.is_waited_for(), poller.may_begin_later) == (False, True)


def test_all_partitions_are_seen_by_one_connection(play: Play) -> None:
    """Also those that nobody asks about: they may be new."""
    cluster = play(*HELD)
    found = a_poller().poll(asked({0: 4, 2: 15}))
    assert found == {
        "kafka/c/t/0": PollResult(span(0, 10), Offset(4)),
        "kafka/c/t/1": PollResult(span(3, 13), Offset(3)),
        "kafka/c/t/2": PollResult(span(5, 15), Offset(15)),
    }
    assert (cluster.connections, cluster.is_done) == (1, True)


def test_a_partition_without_a_leader_has_its_own_error(play: Play) -> None:
    play(metadata(topic(leaders=[(1, 0), (-1, 0)])), offsets(0), offsets(10))
    found = a_poller().poll(asked({0: 4, 1: 4}))
    assert found["kafka/c/t/0"] == PollResult(span(0, 10), Offset(4))
    assert isinstance(found["kafka/c/t/1"], MasterRefused)
    assert str(found["kafka/c/t/1"].log) == "kafka/c/t/1"


# --- topics among what a group reads


def test_the_job_s_options_arrive_and_secrets_by_their_place(tmp_path: Path) -> None:
    given = {
        **OPTIONS, "group": "", "max_offsets_per_trigger": 5, "isolation": "read_uncommitted",
        "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "env:USER_NAME",
        "sasl_password": "file:/password", "ssl_check_hostname": False,
    }  # fmt: skip
    of_topic = parse_options(ReplicatedTopicOptions, given, where="test")
    by_network = {"master": "h:1", "remoting": "h:2", "access_key": "env:ONE", "secret_key": "file:/two"}
    others = {"starting_offset": 7, "split_bytes": 5, "parallel_reads": True, "on_loss": "record"}
    of_log = parse_options(ReadOptions, {"id": "rocketmq/a", **by_network, **others}, where="test")
    masters.write(tmp_path / "masters", [of_topic, of_log])
    assert "file:/password" in (tmp_path / "masters").read_text()
    again, other = MastersFile(tmp_path / "masters").added()
    assert again == of_topic
    assert other == of_log
    assert isinstance(again, ReplicatedTopicOptions)
    assert again.sasl_password == Secret("file:/password")


def options_of(folder: Path) -> dict[str, str]:
    options = parse_options(ReplicatedTopicOptions, {**OPTIONS, "split_offsets": 4}, where="test")
    masters.write(folder / "masters", [options])
    given = {name: str(folder / name) for name in ("masters", "standing")}
    times = dict.fromkeys(("triggerIntervalS", "pollDeadlineS"), str(PATIENCE_S))  # a machine may be busy
    return {**given, **times}


def test_a_topics_error_is_that_of_each_listed_partition(play: Play, tmp_path: Path) -> None:
    play(*HELD)
    places = {f"kafka/c/t/{number}": ListedLog(Offset(5), 1, str(OTHER_ID)) for number in (0, 2)}
    standing.write(tmp_path / "standing", Standing(places, 10**9))
    with planning(options_of(tmp_path)) as planner:
        end = GroupOffset.from_json(planner.latestOffset(planner.initialOffset(), ReadAllAvailable()))
    assert {log_id: type(error) for log_id, error in end.errors.items()} == {
        "kafka/c/t/0": Recreated,
        "kafka/c/t/2": Recreated,
    }
    assert not end.batches
