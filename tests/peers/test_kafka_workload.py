"""The orders of the Kafka demo in a real broker: as many as is said."""

from __future__ import annotations

from contextlib import closing

import pytest
from kafka import KafkaConsumer, TopicPartition

from pipeline.demo.kafka_workload import Sender
from sources.errors import MasterError
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_traffic import create_topic

pytestmark = pytest.mark.peer


def test_a_consumer_is_given_what_the_sender_counts(newest_kafka: KafkaBroker) -> None:
    create_topic(newest_kafka, "demo", 3)
    sent = Sender(newest_kafka.server, "demo").send(7, duration_s=60, count=4_000)
    tps = [TopicPartition("demo", number) for number in range(3)]
    options = {"isolation_level": "read_committed", "enable_auto_commit": False, "group_id": None}
    with closing(KafkaConsumer(bootstrap_servers=newest_kafka.server, **options)) as consumer:
        consumer.assign(tps)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(tps)
        found = []
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            found += [record for part in consumer.poll(timeout_ms=500).values() for record in part]
    assert sent.records >= 4_000
    assert len(found) == sent.records
    assert sum(record.value is None for record in found) == sent.tombstones > 0
    assert sent.committed > 0
    assert sent.aborted > 0
    assert sum(ends.values()) > len(found) + sent.withdrawn  # aborted records are in the log, and so are markers


def test_a_topic_that_takes_no_orders_is_named(newest_kafka: KafkaBroker) -> None:
    create_topic(newest_kafka, "narrow", max_message_bytes=100)
    with pytest.raises(MasterError, match=r"does not take the orders.*TooLarge"):
        Sender(newest_kafka.server, "narrow").send(7, duration_s=60)
