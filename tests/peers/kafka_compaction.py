"""A topic with holes where a real broker has taken records out, and takes no more of them."""

from typing import Any

from kafka.admin import ConfigResource

from sources.kafka.cluster.settings import Isolation
from sources.offsets import END
from tests.patience import wait_until
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_reading import Row, consumed
from tests.peers.kafka_traffic import Record, admin, create_topic, producer, send

_LOOK_AGAIN_S = 1.0  # the broker's cleaner looks for work twice as often


def compacted_topic(broker: KafkaBroker, topic: str, **options: Any) -> list[Row]:
    """What is left of 2,000 records and more. Options are the producer's."""
    create_compacted(broker, topic)
    with producer(broker, batch_size=4000, **options) as through:
        send(through, topic, [Record(b"%d " % number * 50, b"%d" % (number % 7)) for number in range(2000)])
    await_compaction(broker, topic, 200)
    set_config(broker, topic, "cleanup.policy", "delete")
    return await_rest(broker, topic)


def create_compacted(broker: KafkaBroker, topic: str, **configs: Any) -> None:
    compacted: dict[str, Any] = {"cleanup_policy": "compact", "segment_ms": 300, "delete_retention_ms": 100}
    create_topic(broker, topic, **compacted, **configs, min_cleanable_dirty_ratio="0.01")


def set_config(broker: KafkaBroker, topic: str, key: str, value: str | int) -> None:
    with admin(broker) as client:
        client.alter_configs([ConfigResource("topic", topic, {key: str(value)})])


def await_compaction(broker: KafkaBroker, topic: str, fewer_than: int, below: int = END) -> None:
    with producer(broker) as through:

        def is_cleaned() -> bool:
            send(through, topic, [Record(b"rolls the segment", b"roll")])
            return len(left_of(broker, topic, below)) < fewer_than

        wait_until(is_cleaned, "a compacted topic")


def await_rest(broker: KafkaBroker, topic: str, below: int = END) -> list[Row]:
    """What is left once the broker takes no more."""
    seen = [left_of(broker, topic, below)]

    def is_at_rest() -> bool:
        seen.append(left_of(broker, topic, below))
        return seen[-1] == seen[-2]

    wait_until(is_at_rest, "the end of the compaction", look_every_s=_LOOK_AGAIN_S)
    return seen[-1]


def left_of(broker: KafkaBroker, topic: str, below: int = END) -> list[Row]:
    return [row for row in consumed(broker, topic, Isolation.READ_COMMITTED) if row[0] < below]
