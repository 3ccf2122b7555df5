"""The orders of the Kafka demo: repeatable, of every kind, and in a broker as many as is said."""

from __future__ import annotations

import json
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from pipeline.demo.kafka_broker import VERSION
from pipeline.demo.kafka_workload import OrderRecord, Sender, Transaction, orders
from sources.errors import MasterError
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_traffic import create_topic

STATUSES = ["placed", "paid", "packed", "shipped"]


def records(seed: int, count: int) -> list[OrderRecord]:
    found: list[OrderRecord] = []
    for item in orders(seed):
        found += item.records if isinstance(item, Transaction) else [item]
        if len(found) >= count:
            return found
    raise AssertionError("the sequence ended")


def test_the_same_seed_makes_the_same_orders() -> None:
    assert list(islice(orders(7), 3000)) == list(islice(orders(7), 3000))
    assert list(islice(orders(7), 3000)) != list(islice(orders(8), 3000))


def test_each_order_has_its_statuses_in_order() -> None:
    seen: dict[bytes, list[str | None]] = {}
    for record in records(7, 5_000):
        value = None if record.value is None else json.loads(record.value)
        assert value is None or record.key == f"order-{value['order']:07d}".encode()
        seen.setdefault(record.key, []).append(None if value is None else value["status"])
    ways = {tuple(way) for way in seen.values()}
    whole = {tuple(STATUSES[:length]) for length in range(1, 5)}
    assert ways == whole | {(*way, None) for way in whole if len(way) < 4}


def test_some_come_in_transactions_of_which_some_are_aborted() -> None:
    transactions = [item for item in islice(orders(7), 5_000) if isinstance(item, Transaction)]
    assert {item.is_committed for item in transactions} == {True, False}
    assert all(len(item.records) > 1 for item in transactions)


@pytest.mark.peer
@pytest.mark.nightly  # the broker is its own: the demo's version
def test_a_consumer_is_given_what_the_sender_counts(tmp_path: Path) -> None:
    with KafkaBroker(VERSION, tmp_path) as broker:
        create_topic(broker, "orders", 3)
        sent = Sender(broker.server, "orders").send(7, duration_s=60, count=10_000)
        tps = [TopicPartition("orders", number) for number in range(3)]
        options = {"isolation_level": "read_committed", "enable_auto_commit": False, "group_id": None}
        with closing(KafkaConsumer(bootstrap_servers=broker.server, **options)) as consumer:
            consumer.assign(tps)
            consumer.seek_to_beginning()
            ends = consumer.end_offsets(tps)
            found = []
            while any(consumer.position(tp) < ends[tp] for tp in tps):
                found += [record for part in consumer.poll(timeout_ms=500).values() for record in part]
        create_topic(broker, "narrow", max_message_bytes=100)
        with pytest.raises(MasterError, match=r"does not take the orders.*TooLarge"):
            Sender(broker.server, "narrow").send(7, duration_s=60)
    assert sent.records >= 10_000
    assert len(found) == sent.records
    assert sum(record.value is None for record in found) == sent.tombstones > 0
    assert sent.committed > 0
    assert sent.aborted > 0
    assert sum(ends.values()) > len(found) + sent.withdrawn  # aborted records are in the log, and so are markers
