"""A real Kafka broker with a topic and a producer: ``python -m bench.partitions FOLDER COUNT RATE TOPIC``.

The topic has COUNT partitions, and gets messages of 1 KB, RATE a second in all, one partition after the other. What the
process says, and when it ends, is in `bench.load`.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import closing
from pathlib import Path

from kafka import KafkaProducer
from kafka.producer.future import FutureRecordMetadata

from bench.load import line_awaited, say
from bench.payloads import create_topic
from bench.steady_load import bodies
from pipeline.demo.kafka_broker import running_broker

TICK_S = 0.02
_LINGER_MS = 5


def serve(folder: Path, count: int, rate_per_s: float, topic: str) -> None:
    """Run the broker and send messages, as controlled by the input."""
    with running_broker(folder / "broker") as server:
        create_topic(server, topic, count, {"message.timestamp.type": "LogAppendTime"})
        say(server)
        say([send(server, count, rate_per_s, topic, line_awaited())])
        sys.stdin.read()


def send(server: str, count: int, rate_per_s: float, topic: str, stopping: threading.Event) -> int:
    """Send to each partition in turn until `stopping` is set. Returns how many messages the broker has stored.

    Raises KafkaError if one is refused.
    """
    values = bodies()
    with closing(KafkaProducer(bootstrap_servers=server, linger_ms=_LINGER_MS)) as producer:
        answers: list[FutureRecordMetadata] = []
        started_s = time.monotonic()
        while not stopping.wait(TICK_S):
            due = int((time.monotonic() - started_s) * rate_per_s)
            answers += [
                producer.send(topic, next(values), partition=number % count) for number in range(len(answers), due)
            ]
        return sum(answer.get() is not None for answer in answers)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
