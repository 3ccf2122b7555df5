"""A topic with holes where a real broker has taken records out, and takes no more of them."""

from __future__ import annotations

from typing import Any

from kafka.admin import ConfigResource

from sources.kafka.isolation import Isolation
from tests.patience import wait_until
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_reading import Row, consumed
from tests.peers.kafka_traffic import Record, admin, create_topic, producer, send

_LOOK_AGAIN_S = 0.5  # the broker's cleaner looks for work as often


def compacted_topic(broker: KafkaBroker, topic: str, **options: Any) -> list[Row]:
    """What is left of 2,000 records and more. Options are the producer's."""
    create_topic(
        broker, topic, cleanup_policy="compact", segment_ms=300, min_cleanable_dirty_ratio="0.01",
        delete_retention_ms=100,
    )  # fmt: skip
    with producer(broker, batch_size=4000, **options) as through:
        send(through, topic, [Record(b"%d " % number * 50, b"%d" % (number % 7)) for number in range(2000)])

        def is_cleaned() -> bool:
            send(through, topic, [Record(b"rolls the segment", b"roll")])
            return len(_left(broker, topic)) < 200

        wait_until(is_cleaned, "a compacted topic")
    with admin(broker) as client:
        client.alter_configs([ConfigResource("topic", topic, {"cleanup.policy": "delete"})])
    seen = [_left(broker, topic)]

    def is_at_rest() -> bool:
        seen.append(_left(broker, topic))
        return seen[-1] == seen[-2]

    wait_until(is_at_rest, "the end of the compaction", look_every_s=_LOOK_AGAIN_S)
    return seen[-1]


def _left(broker: KafkaBroker, topic: str) -> list[Row]:
    return consumed(broker, topic, Isolation.READ_COMMITTED)
