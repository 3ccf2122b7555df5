"""A partition as a master log: what is asked of whom, and what the contract promises of it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from sources.errors import ConfigurationError, Recreated
from sources.kafka.cluster.settings import KafkaSettings
from sources.kafka.format.columns import canonical
from sources.kafka.log import KafkaLog
from sources.kafka.options import RECORD_BYTES
from sources.kafka.topic import KafkaTopic
from sources.master import Chunk, Known, MasterLog
from sources.offsets import Offset
from tests.sources.kafka.scripted_cluster import (
    OTHER_ID,
    TOPIC_ID,
    Play,
    ScriptedCluster,
    batch,
    fetched,
    metadata,
    offsets,
    topic,
)
from tests.spans import span

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
    assert (log.place, a_log(settings=KafkaSettings(servers=("h:1", "h:2"))).place) == ("h:1", "h:1,h:2")
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


def test_in_a_hurry_it_waits_for_its_leader_no_longer_than_that() -> None:
    log = a_log(known=Known(str(TOPIC_ID), Offset(0), None), patience_ms=30_000)
    readers = [one.reader for one in (log, log.hurried(2.0), log.hurried(60.0))]
    assert [(one.patience_ms, one.patience_s) for one in readers] == [(30_000, None), (2000, 2.0), (30_000, 60.0)]


def test_what_is_read_in_the_same_way_is_read_together() -> None:
    orders, refunds = (a_log(topic=name).reader for name in ("orders", "refunds"))
    assert (orders == refunds, hash(orders) == hash(refunds)) == (True, True)
    assert a_log(1).reader == orders
    assert a_log().hurried(2.0).reader != orders
    assert a_log(chunk_bytes=7).reader != orders


def test_raw_bytes_are_restored_from_the_records(play: Play) -> None:
    log = a_log(known=Known(str(TOPIC_ID), Offset(3), None))
    play(HERE, fetched(batch(0, 10)))
    (chunk,) = read(log, 3, 8)
    play(HERE, fetched(batch(0, 5)), fetched(batch(5, 5)))
    raw = b"".join(bytes(piece) for piece in log.raw(span(3, 8), committed=None))
    assert raw == bytes(chunk.raw) == log.restore(chunk.records.select(list(log.traits.restored_from)))
    assert raw == canonical(chunk.records)
    assert log.lengths(chunk.records.select(list(log.traits.measured_by))).sum() == len(raw)


def test_the_bounds_are_those_of_its_partition(play: Play) -> None:
    cluster = play(THREE, offsets(0, 3, 5), offsets(10, 13, 15))
    assert a_log(1).bounds() == span(3, 13)
    assert cluster.is_done


def test_a_partition_that_there_is_not_and_a_topic_that_is_another_are_said(play: Play) -> None:
    play(THREE, offsets(0, 3, 5), offsets(10, 13, 15))
    with pytest.raises(ConfigurationError, match="no such partition") as caught:
        a_log(3).bounds()
    assert (caught.value.log, caught.value.found) == ("kafka/c/t/3", "3")
    play(THREE)
    with pytest.raises(Recreated):
        a_log(known=Known(str(OTHER_ID), None, None)).bounds()


def test_who_else_consumes_with_the_group_matters_to_a_replica_alone(play: Play) -> None:
    cluster = play()
    a_log(group="g").check(is_replica=False)
    assert cluster.connections == 0
