"""A process that sends messages of 1 KB at a steady rate to a RocketMQ or a Kafka broker.

``python -m bench.steady_load rocketmq|kafka|orders SERVER TOPIC COUNT`` prints how many messages it sent: RATE_PER_S of
them, ten at a time every hundredth of a second; the Kafka producer lingers for 5 ms. The first two kinds get the same
bodies, the third has orders for a RocketMQ broker (`bench.payloads`).
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from itertools import islice
from pathlib import Path

from kafka import KafkaProducer

from bench.payloads import orders
from pipeline.system.child_process import child_process
from sources.access.address import Address
from sources.rocketmq.producer.producer import OutgoingMessage
from sources.rocketmq.producer.workload import send_workload

RATE_PER_S = 1000
BODY_BYTES = 1000
_LINGER_MS = 5
_WORTH_SLEEPING_S = 0.01


def steady_load(kind: str, server: str, topic: str, seconds: int) -> AbstractContextManager[subprocess.Popen[str]]:
    """Start the process that sends for `seconds`; `sent` reads its result once it has ended."""
    command = [sys.executable, "-m", "bench.steady_load", kind, server, topic, str(RATE_PER_S * seconds)]
    return child_process(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True)


def sent(load: subprocess.Popen[str]) -> int:
    """How many messages the process has sent, which must have ended. Raises SystemExit if it failed."""
    if load.returncode or load.stdout is None:
        raise SystemExit(f"the producer ended with {load.returncode}")
    return int(load.stdout.read())


def bodies() -> Iterator[bytes]:
    """Bodies that no codec can compress."""
    chance = random.Random(7)
    while True:
        yield chance.randbytes(BODY_BYTES)


def to_rocketmq(server: str, topic: str, count: int) -> int:
    """Send `count` messages. Returns how many the broker stored."""
    return _sent_to_rocketmq(server, topic, count, bodies())


def orders_to_rocketmq(server: str, topic: str, count: int) -> int:
    """Send `count` orders. Returns how many the broker stored."""
    return _sent_to_rocketmq(server, topic, count, (body for _, body in orders(count)))


def _sent_to_rocketmq(server: str, topic: str, count: int, values: Iterator[bytes]) -> int:
    items = (OutgoingMessage(topic, body) for body in values)
    return send_workload(Address.parse(server), items, count=count, rate_per_s=RATE_PER_S).messages


def to_kafka(server: str, topic: str, count: int) -> int:
    """Send `count` messages. Returns how many the broker stored. Raises KafkaError if it does not store one."""
    with closing(KafkaProducer(bootstrap_servers=server, linger_ms=_LINGER_MS)) as producer:
        started = time.monotonic()
        answers = []
        for number, body in enumerate(islice(bodies(), count)):
            ahead_s = number / RATE_PER_S - (time.monotonic() - started)
            if ahead_s >= _WORTH_SLEEPING_S:
                time.sleep(ahead_s)
            answers.append(producer.send(topic, body))
        return sum(answer.get() is not None for answer in answers)


KINDS: dict[str, Callable[[str, str, int], int]] = {
    "rocketmq": to_rocketmq,
    "kafka": to_kafka,
    "orders": orders_to_rocketmq,
}

if __name__ == "__main__":
    print(KINDS[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4])))
