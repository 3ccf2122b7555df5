"""Partitions of real Kafka brokers, read by offset: equal to what an independent consumer reads, however they are cut.

And what no consumer says aloud: that a log was cut.
"""

import hashlib
import random
import struct
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.demo.kafka_workload import Sender
from sources.errors import AboveMaximum, ConfigurationError, MasterError, MasterRefused, Rewritten
from sources.kafka.cluster.connection import connected
from sources.kafka.cluster.group import ConsumerGroup
from sources.kafka.cluster.settings import Isolation
from sources.kafka.cluster.topics import TopicPartition
from sources.kafka.log import KafkaLog
from sources.master import Chunk, Committed, Damage, Known
from sources.offsets import Offset, OffsetRange
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_groups import java_member
from tests.peers.kafka_reading import COLUMNS, Row, consumed, partition_of, pieces_of, rows, settings_of
from tests.peers.kafka_traffic import Record, a_record, create_topic, producer, send, send_mixed

pytestmark = pytest.mark.peer

PARTITIONS = 3
MIXED = "read-mixed"
BOTH = tuple(Isolation)


@pytest.fixture(scope="module")
def mixed(each_kafka: KafkaBroker) -> Iterator[KafkaBroker]:
    """With the topic MIXED: every compression, headers, tombstones; transactions committed, aborted, and one open."""
    create_topic(each_kafka, MIXED, PARTITIONS)
    chance = random.Random(each_kafka.version)
    send_mixed(each_kafka, MIXED, PARTITIONS, 1500, chance)
    never_ended = producer(each_kafka, transactional_id="open", transaction_timeout_ms=600_000, compression_type="zstd")
    with never_ended as through, producer(each_kafka) as plain:
        through.begin_transaction()
        send(through, MIXED, (a_record(chance) for _ in range(10)))
        for partition in range(PARTITIONS):
            send(plain, MIXED, (a_record(chance) for _ in range(50)), partition)  # behind the open transaction
        yield each_kafka


def sound(pieces: Iterable[Chunk | Damage]) -> Iterator[Chunk]:
    for piece in pieces:
        assert isinstance(piece, Chunk)
        yield piece


def read(partition: KafkaLog, owned: OffsetRange, after_epoch: int | None = None) -> list[Chunk]:
    """The chunks of `owned`, which join and cover exactly that."""
    chunks = list(sound(pieces_of(partition, owned, after_epoch)))
    edges = [chunk.covered for chunk in chunks]
    assert [edge.start for edge in edges] + [owned.end] == [owned.start] + [edge.end for edge in edges]
    for chunk in chunks:
        assert all(offset in chunk.covered for offset in chunk.records.column("offset").to_pylist())
    return chunks


def check_history(partition: KafkaLog, position: Offset, epoch: int | None) -> None:
    for error in partition.topic.check_history(
        {partition.log_id: Known(partition.known.identity, position, epoch)}
    ).values():
        raise error


def rows_of(chunks: list[Chunk]) -> list[Row]:
    return [row for chunk in chunks for row in rows(chunk.records)]


def checksum(chunks: list[Chunk]) -> str:
    return hashlib.sha256(b"".join(bytes(chunk.raw) for chunk in chunks)).hexdigest()


def epoch_after(chunks: list[Chunk]) -> int:
    epoch = chunks[-1].mark
    assert epoch is not None
    return epoch


def cut(whole: OffsetRange, chance: random.Random, pieces: int) -> list[OffsetRange]:
    edges = sorted({whole.start, whole.end, *(chance.randrange(whole.start, whole.end) for _ in range(pieces - 1))})
    return [OffsetRange(Offset(start), Offset(end)) for start, end in pairwise(edges)]


@pytest.mark.parametrize("isolation", BOTH, ids=lambda isolation: isolation.name)
def test_what_is_read_in_random_pieces_is_what_a_consumer_reads(mixed: KafkaBroker, isolation: Isolation) -> None:
    chance = random.Random(8)
    for number in range(PARTITIONS):
        expected = consumed(mixed, MIXED, isolation, number)
        assert len(expected) > 400
        partition = partition_of(mixed, MIXED, number, isolation=isolation)
        whole = partition.bounds()
        at_once = read(partition, whole)
        assert rows_of(at_once) == expected
        for chunk_bytes in (700, 20_000):
            small = partition_of(mixed, MIXED, number, isolation=isolation, chunk_bytes=chunk_bytes)
            pieces = cut(whole, chance, pieces=9)
            read_alone = {piece.start: read(small, piece) for piece in chance.sample(pieces, len(pieces))}
            chunks = [chunk for piece in pieces for chunk in read_alone[piece.start]]
            for piece in pieces:  # the epoch after it is what the leader takes to go on
                check_history(partition, piece.end, epoch_after(read_alone[piece.start]))
            assert len(chunks) > len(at_once)
            assert rows_of(chunks) == expected
            assert checksum(chunks) == checksum(at_once)


def test_a_log_that_was_cut_is_told_from_one_that_went_on(each_kafka: KafkaBroker) -> None:
    create_topic(each_kafka, "cut")
    with producer(each_kafka) as through:
        for number in range(100):
            send(through, "cut", [Record(b"%d" % number)])
    partition = partition_of(each_kafka, "cut")
    position = partition.bounds().end
    epoch = epoch_after(read(partition, partition.bounds()))
    each_kafka.stop()
    end = cut_log(each_kafka.partition_folder("cut", 0))
    each_kafka.start()
    assert partition.bounds() == OffsetRange(Offset(0), end)
    for last_epoch in (None, epoch):
        with pytest.raises(AboveMaximum, match=f"{end}"):
            check_history(partition, position, last_epoch)
        with pytest.raises(AboveMaximum, match=f"{end}"):
            read(partition, OffsetRange(position, Offset(position + 1)), last_epoch)
    with producer(each_kafka) as through:
        send(through, "cut", [Record(b"another %d" % number) for number in range(100)])
    goes_on = OffsetRange(position, partition.bounds().end)
    assert goes_on.size == end
    with pytest.raises(
        Rewritten, match=f"leader epoch {epoch} up to {position} or more, found epoch {epoch} up to {end}"
    ):
        check_history(partition, position, epoch)
    with pytest.raises(Rewritten, match=f"found epoch {epoch} up to {end}") as raised:
        read(partition, goes_on, epoch)
    assert (raised.value.log, raised.value.offset) == ("kafka/test/cut/0", end)
    assert epoch_after(read(partition, OffsetRange(Offset(0), end))) == epoch
    later = epoch_after(read(partition, OffsetRange(end, goes_on.end), epoch))
    assert later > epoch
    check_history(partition, goes_on.end, later)


def cut_log(folder: Path) -> Offset:
    """Takes the last third of the segment file, up to a batch; the offset where it ends now."""
    (segment,) = folder.glob("*.log")
    content = segment.read_bytes()
    at, end = 0, Offset(0)
    while at < len(content) * 2 // 3:
        base_offset, length = struct.unpack_from(">qi", content, at)
        at, end = at + 12 + length, Offset(base_offset + 1)
    segment.write_bytes(content[:at])
    for index in folder.glob("*index"):
        index.unlink()
    return end


# the consumer group: what we commit is what Kafka's tools see, and others in the group are named


@pytest.fixture(scope="module")
def broker(each_kafka: KafkaBroker) -> KafkaBroker:
    create_topic(each_kafka, "a")
    with producer(each_kafka) as through:
        send(through, "a", [Record(b"%d" % number) for number in range(10)])
    return each_kafka


A0 = TopicPartition("a", 0)


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.nightly), "consumer"])
def test_a_group_in_which_somebody_consumes_is_refused_naming_him(broker: KafkaBroker, protocol: str) -> None:
    """By the protocol of Kafka's groups, and by the newer one (KIP-848)."""
    if protocol == "consumer" and broker.version.startswith("3."):
        pytest.skip("the newer protocol is off by default before Kafka 4")
    group = ConsumerGroup(f"taken by {protocol}")
    position = {A0: Committed(Offset(5), 0)}
    with connected(settings_of(broker)) as cluster:
        with java_member(broker, group.name, protocol, "a"):
            for refused in (partial(group.check, cluster), partial(group.commit, cluster, position)):
                with pytest.raises(ConfigurationError, match=f"group {group.name} is consumed by others") as raised:
                    refused()
                assert "client 'in Java' at 127.0.0.1" in str(raised.value)
            assert group.committed(cluster, [A0]) == {}
        group.check(cluster)
        group.commit(cluster, position)
        assert group.committed(cluster, [A0]) == position


def test_a_topic_that_is_gone_is_said(broker: KafkaBroker) -> None:
    group = ConsumerGroup("of a topic that is gone", patience_ms=500)
    with connected(settings_of(broker)) as cluster, pytest.raises(MasterRefused, match="gone/0"):
        group.commit(cluster, {TopicPartition("gone", 0): Committed(Offset(1), None)})


# the orders of the Kafka demo: as many as is said


def test_a_consumer_is_given_what_the_sender_counts(newest_kafka: KafkaBroker) -> None:
    create_topic(newest_kafka, "demo", 3)
    sent = Sender(newest_kafka.server, "demo").send(7, duration_s=60, count=4_000)
    found = [row for number in range(3) for row in consumed(newest_kafka, "demo", Isolation.READ_COMMITTED, number)]
    ends = [partition_of(newest_kafka, "demo", number).bounds().end for number in range(3)]
    assert sent.records >= 4_000
    assert len(found) == sent.records
    assert sum(row[COLUMNS.index("value")] is None for row in found) == sent.tombstones > 0
    assert sent.committed > 0
    assert sent.aborted > 0
    assert sum(ends) > len(found) + sent.withdrawn  # aborted records are in the log, and so are markers


def test_a_topic_that_takes_no_orders_is_named(newest_kafka: KafkaBroker) -> None:
    create_topic(newest_kafka, "narrow", max_message_bytes=100)
    with pytest.raises(MasterError, match=r"does not take the orders.*TooLarge"):
        Sender(newest_kafka.server, "narrow").send(7, duration_s=60)
