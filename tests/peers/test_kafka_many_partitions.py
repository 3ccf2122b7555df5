"""Hundreds of partitions of a real broker, read at once, round after round; what is wrong with one is its own."""

from dataclasses import replace
from typing import Any

import pytest

from sources.errors import BelowMinimum, ChecksumMismatch
from sources.kafka.cluster.connection import Cluster
from sources.kafka.log import KafkaLog
from sources.kafka.reader import KafkaReader
from sources.kafka.topic import KafkaTopic
from sources.master import Chunk, Known
from sources.offsets import Offset
from sources.reading import Ended, WantedSplit
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_reading import settings_of, topic_of
from tests.peers.kafka_traffic import create_topic, delete_records, producer
from tests.spans import span

pytestmark = pytest.mark.peer

TOPIC, PARTITIONS, EACH = "hundreds", 300, 2
OVERTAKEN, DAMAGED = 7, 11
SMALL_BYTES = 20_000


def value(partition: int, offset: int) -> bytes:
    return b"%d/%d " % (partition, offset) * 20


def send_round(broker: KafkaBroker, number: int) -> None:
    """EACH records to every partition; each record is a batch of its own."""
    with producer(broker, linger_ms=0, batch_size=0) as through:
        for offset in range(number * EACH, (number + 1) * EACH):
            sent = [through.send(TOPIC, value(at, offset), partition=at) for at in range(PARTITIONS)]
            through.flush(60)
            assert {one.get(60).offset for one in sent} == {offset}


def read_round(
    reader: KafkaReader, topic_id: str, number: int, marks: dict[int, int | None]
) -> tuple[dict[int, list[bytes]], dict[int, Exception]]:
    """The values of each partition, and the errors; `marks` are the epochs before, and then those after."""
    start, end = number * EACH, (number + 1) * EACH
    topic = KafkaTopic(settings=reader.settings, cluster="c", topic=TOPIC)
    known = [Known(topic_id, Offset(start), marks.get(at)) for at in range(PARTITIONS)]
    wanted = [
        WantedSplit(KafkaLog(topic=topic, number=at, known=one), span(start, end)) for at, one in enumerate(known)
    ]
    values: dict[int, list[bytes]] = {at: [] for at in range(PARTITIONS)}
    errors: dict[int, Exception] = {}
    reached = dict.fromkeys(range(PARTITIONS), start)
    for at, come in reader.read(wanted):
        if isinstance(come, Chunk):
            assert come.covered.start == reached[at]
            assert set(come.records.column("partition").to_pylist()) == {at}
            values[at] += come.records.column("value").to_pylist()
            reached[at], marks[at] = come.covered.end, come.mark
        elif isinstance(come, Ended) and come.error is not None:
            errors[at] = come.error
        else:
            assert reached[at] == end
    return values, errors


def expected(number: int, *, but: set[int]) -> dict[int, list[bytes]]:
    offsets = range(number * EACH, (number + 1) * EACH)
    return {at: [value(at, offset) for offset in offsets] for at in range(PARTITIONS) if at not in but}


def test_hundreds_of_partitions_are_one_request_and_each_has_its_own_errors(
    newest_kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches: list[int] = []
    plain = Cluster.send

    def send(cluster: Cluster, request: Any, node_id: int | None = None) -> Any:
        if request.name == "FetchRequest":
            fetches.append(sum(len(topic.partitions) for topic in request.topics))
        return plain(cluster, request, node_id)

    monkeypatch.setattr(Cluster, "send", send)
    create_topic(newest_kafka, TOPIC, PARTITIONS)
    topic_id = str(topic_of(newest_kafka, TOPIC).id)
    whole = KafkaReader(settings=settings_of(newest_kafka))
    small = replace(whole, chunk_bytes=SMALL_BYTES)
    marks: dict[int, int | None] = {}

    send_round(newest_kafka, 0)
    assert read_round(whole, topic_id, 0, marks) == (expected(0, but=set()), {})
    assert fetches == [PARTITIONS]

    fetches.clear()
    send_round(newest_kafka, 1)
    delete_records(newest_kafka, TOPIC, OVERTAKEN, 2 * EACH)
    values, errors = read_round(small, topic_id, 1, marks)
    assert {at: values[at] for at in range(PARTITIONS) if at != OVERTAKEN} == expected(1, but={OVERTAKEN})
    assert [(at, type(error)) for at, error in errors.items()] == [(OVERTAKEN, BelowMinimum)]
    assert fetches[0] == PARTITIONS
    assert len(fetches) > 3  # nobody starves, although an answer has room for a few

    send_round(newest_kafka, 2)
    (log,) = newest_kafka.partition_folder(TOPIC, DAMAGED).glob("*.log")
    stored = log.read_bytes()
    at_byte = stored.index(value(DAMAGED, 2 * EACH))
    with log.open("r+b") as file:
        file.seek(at_byte)
        file.write(bytes([stored[at_byte] ^ 1]))
    values, errors = read_round(whole, topic_id, 2, marks)
    assert {at: values[at] for at in range(PARTITIONS) if at != DAMAGED} == expected(2, but={DAMAGED})
    assert [(at, type(error)) for at, error in errors.items()] == [(DAMAGED, ChecksumMismatch)]
    error = errors[DAMAGED]
    assert isinstance(error, ChecksumMismatch)
    assert (error.log, error.offset) == (f"kafka/c/{TOPIC}/{DAMAGED}", 2 * EACH)
