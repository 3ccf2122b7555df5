"""What a test does to a real Kafka broker: topics, and records of every kind, by kafka-python's own clients."""

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient

from tests.peers.kafka import KafkaBroker

COMPRESSIONS = (None, "gzip", "snappy", "lz4", "zstd")
_SENT_WITHIN_S = 60


@dataclass(frozen=True, slots=True)
class Record:
    """What is sent. A tombstone has no value. Without a timestamp the producer's clock gives it.

    kafka-python sends none that has neither value nor key, and no header without a value.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    timestamp_ms: int | None = None


def create_topic(
    broker: KafkaBroker, name: str, partitions: int = 1, *, replicas: Sequence[Sequence[int]] = (), **configs: str | int
) -> None:
    """Waits until each partition has a leader. `replicas` are the node ids of each partition, instead of `partitions`.

    `configs` are the topic's, with _ for the dots: ``cleanup_policy="compact"``.
    """
    options: dict[str, Any] = {"configs": {key.replace("_", "."): str(value) for key, value in configs.items()}}
    if replicas:
        options["assignments"] = {partition: list(nodes) for partition, nodes in enumerate(replicas)}
    else:
        options |= {"num_partitions": partitions, "replication_factor": 1}
    with admin(broker) as client:
        client.create_topics({name: options}, wait_for_metadata=True)


def delete_topic(broker: KafkaBroker, name: str) -> None:
    with admin(broker) as client:
        client.delete_topics([name])


def add_partitions(broker: KafkaBroker, topic: str, count: int) -> None:
    with admin(broker) as client:
        client.create_partitions({topic: count})


def delete_records(broker: KafkaBroker, topic: str, partition: int, before: int) -> None:
    """As retention does: the log starts at offset `before` afterwards."""
    with admin(broker) as client:
        client.delete_records({TopicPartition(topic, partition): before})


@contextmanager
def admin(broker: KafkaBroker) -> Iterator[KafkaAdminClient]:
    """What the functions above have no words for."""
    client = KafkaAdminClient(bootstrap_servers=broker.server)
    try:
        yield client
    finally:
        client.close()


@contextmanager
def producer(broker: KafkaBroker, **options: Any) -> Iterator[KafkaProducer]:
    """Options are KafkaProducer's: compression_type, batch_size, …; with a transactional_id transactions can begin."""
    client = KafkaProducer(bootstrap_servers=broker.server, **{"linger_ms": 5} | options)
    try:
        if "transactional_id" in options:
            client.init_transactions()
        yield client
    finally:
        client.close()


def send(through: KafkaProducer, topic: str, records: Iterable[Record], partition: int = 0) -> list[int]:
    """The offset of each, once all are acknowledged."""
    sent = [
        through.send(
            topic, one.value, one.key, headers=list(one.headers), partition=partition, timestamp_ms=one.timestamp_ms
        )
        for one in records
    ]
    through.flush(_SENT_WITHIN_S)
    return [each.get(_SENT_WITHIN_S).offset for each in sent]


@contextmanager
def transaction(of: KafkaProducer, *, commit: bool = True) -> Iterator[None]:
    """What is sent inside is committed, or aborted."""
    of.begin_transaction()
    yield
    if commit:
        of.commit_transaction()
    else:
        of.abort_transaction()


def a_record(chance: random.Random) -> Record:
    """With and without key, headers, a time of its own; a tenth of those with a key are tombstones."""
    key = chance.choice((None, b"", chance.randbytes(8)))
    value = chance.choice((b"", b"text " * chance.randrange(60), chance.randbytes(chance.randrange(400))))
    headers = [
        (chance.choice(("", "h", "ü")), chance.choice((b"", chance.randbytes(9)))) for _ in range(chance.randrange(4))
    ]
    is_tombstone = key is not None and chance.random() < 0.1
    timestamp_ms = chance.choice((None, 0, 1_700_000_000_123, chance.randrange(2**40)))
    return Record(None if is_tombstone else value, key, headers, timestamp_ms)


def send_mixed(broker: KafkaBroker, topic: str, partitions: int, count: int, chance: random.Random) -> None:
    """At least `count` records, by each compression in turn; more in transactions, of which the first is aborted, and
    then every other one."""
    records = [a_record(chance) for _ in range(min(500, count // (len(COMPRESSIONS) * partitions)))]
    with ExitStack() as stack:
        plain = [stack.enter_context(producer(broker, compression_type=name)) for name in COMPRESSIONS]
        in_transactions = stack.enter_context(producer(broker, transactional_id=f"{topic}-{chance.random()}"))
        for turn in range(math.ceil(count / (partitions * len(records)))):
            for partition in range(partitions):
                send(plain[turn % len(plain)], topic, records, partition)
            with transaction(in_transactions, commit=turn % 2 == 1):
                for partition in range(partitions):
                    send(in_transactions, topic, records[: len(records) // 5], partition)
