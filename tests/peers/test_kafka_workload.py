"""The orders of the Kafka demo in a real broker: as many as is said."""

import pytest

from pipeline.demo.kafka_workload import Sender
from sources.errors import MasterError
from sources.kafka.format.transactions import Isolation
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_reading import COLUMNS, consumed, partition_of
from tests.peers.kafka_traffic import create_topic

pytestmark = pytest.mark.peer


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
