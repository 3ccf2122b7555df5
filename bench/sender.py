"""Masters, and a producer for them, in one process: ``python -m bench.sender KIND FOLDER COUNT RATE TOPIC``.

It sends RATE messages of 1 KB a second in all, to one log after the other. KIND is one of

    embedded    COUNT of logtwin's own masters
    broker      a real RocketMQ broker
    orders      the same, for messages that are orders (`bench.payloads`)
    partitions  a real Kafka broker whose topic has COUNT partitions, with the broker's times

The stores are in FOLDER. What the process says, and when it ends, is in `bench.load`.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import confluent_kafka as librdkafka

from bench.load import line_awaited, say
from bench.payloads import create_topic, orders
from pipeline.demo.kafka_broker import running_broker
from pipeline.system.processes import allow_many_files
from sources.access.address import Address
from sources.rocketmq.embedded.master import EmbeddedMaster, MasterSettings
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from tests.peers.rocketmq import Broker

ROCKETMQ_VERSION = "5.5.0"
BODY_BYTES = 1000
TICK_S = 0.02
FLUSH_MS = 500
_LINGER_MS = 5
_MIB = 1024 * 1024
_FILE_BYTES = 1024 * _MIB  # RocketMQ's own; sparse, and no run fills one
LARGE_FILES: dict[str, str | int] = {"mappedFileSizeCommitLog": 256 * _MIB, "mappedFileSizeConsumeQueue": 6_000_000}


class Producing(Protocol):
    """A producer for some logs."""

    def send(self, messages: Iterable[tuple[int, bytes]]) -> None:
        """Send numbers and bodies; the number says to which log. Raises SystemExit if a message is refused."""

    def stored(self) -> int:
        """How many messages the masters have stored; waits until they have all. Raises as `send`."""


def send_at_rate(
    producing: Producing,
    bodies: Iterator[bytes],
    rate_per_s: float,
    is_over: Callable[[float], bool],
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Send what is due at each tick, until `is_over`, which waits for so many seconds. Returns how many are stored."""
    sent, started_s = 0, clock()
    while not is_over(TICK_S):
        due = int((clock() - started_s) * rate_per_s)
        producing.send((number, next(bodies)) for number in range(sent, due))
        sent = due
    return producing.stored()


class ToRocketMQ:
    def __init__(self, producers: Sequence[Producer], topic: str) -> None:
        self._producers = producers
        self._topic = topic
        self._stored = 0

    def send(self, messages: Iterable[tuple[int, bytes]]) -> None:
        used: dict[int, Producer] = {}
        for number, body in messages:
            place = number % len(self._producers)
            used[place] = self._producers[place]
            used[place].submit(OutgoingMessage(self._topic, body, {"KEYS": f"order-{number}"}))
        results = [result for producer in used.values() for result in producer.flush()]
        refused = [result for result in results if not result.is_stored]
        if refused:
            raise SystemExit(f"a master refused a message: {refused[0]}")
        self._stored += len(results)

    def stored(self) -> int:
        return self._stored


class ToKafka:
    """By librdkafka: with a thousand partitions kafka-python's producer takes a core for itself."""

    def __init__(self, server: str, topic: str, partitions: int) -> None:
        settings = {"bootstrap.servers": server, "linger.ms": _LINGER_MS, "log_level": 2}  # its broker ends before it
        self._producer = librdkafka.Producer(settings)
        self._topic = topic
        self._partitions = partitions
        self._stored = 0

    def send(self, messages: Iterable[tuple[int, bytes]]) -> None:
        for number, body in messages:
            self._producer.produce(self._topic, body, partition=number % self._partitions, on_delivery=self._answered)
        self._producer.poll(0)

    def stored(self) -> int:
        self._producer.flush()
        return self._stored

    def _answered(self, error: librdkafka.KafkaError | None, _: librdkafka.Message) -> None:
        if error is not None:
            raise SystemExit(f"the broker refused a message: {error}")
        self._stored += 1


Started = AbstractContextManager[tuple[Any, Producing]]
"""Where the masters are, as JSON can hold it, and a producer for them, while the masters run."""


@contextmanager
def embedded(folder: Path, count: int, topic: str) -> Iterator[tuple[Any, Producing]]:
    # All masters together flush as often as one alone would: the comparison is about who replicates them.
    common: dict[str, Any] = {"port": 0, "ha_port": 0, "file_size_bytes": _FILE_BYTES}
    settings = [
        MasterSettings(store=folder / f"master-{number}", flush_interval_ms=FLUSH_MS * count, **common)
        for number in range(count)
    ]
    masters = [EmbeddedMaster(one) for one in settings]
    with asyncio.Runner() as runner:
        for master in masters:
            runner.run(master.start())
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever, name="masters", daemon=True)
        thread.start()
        try:
            with _rocketmq([(one.address, one.ha_address) for one in masters], topic) as said:
                yield said
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            for master in masters:
                runner.run(master.stop())


@contextmanager
def broker(folder: Path, count: int, topic: str) -> Iterator[tuple[Any, Producing]]:
    with (
        Broker(ROCKETMQ_VERSION, folder / "broker", LARGE_FILES) as one,
        _rocketmq([(one.address, one.ha_address)] * count, topic) as said,
    ):
        yield said


@contextmanager
def _rocketmq(addresses: Sequence[tuple[Address, Address]], topic: str) -> Iterator[tuple[Any, Producing]]:
    with ExitStack() as opened:
        producers = [opened.enter_context(Producer(remoting)) for remoting, _ in addresses]
        yield [[str(remoting), str(ha)] for remoting, ha in addresses], ToRocketMQ(producers, topic)


@contextmanager
def partitions(folder: Path, count: int, topic: str) -> Iterator[tuple[Any, Producing]]:
    with running_broker(folder / "broker") as server:
        create_topic(server, topic, count, {"message.timestamp.type": "LogAppendTime"})
        yield server, ToKafka(server, topic, count)


def random_bodies() -> Iterator[bytes]:
    """Bodies that no codec can compress."""
    chance = random.Random(7)
    while True:
        yield chance.randbytes(BODY_BYTES)


def order_bodies() -> Iterator[bytes]:
    return (body for _, body in orders(sys.maxsize))


KINDS: dict[str, tuple[Callable[[Path, int, str], Started], Callable[[], Iterator[bytes]]]] = {
    "embedded": (embedded, random_bodies),
    "broker": (broker, random_bodies),
    "orders": (broker, order_bodies),
    "partitions": (partitions, random_bodies),
}


def main(kind: str, folder: str, count: str, rate_per_s: str, topic: str) -> None:
    allow_many_files()
    masters, bodies = KINDS[kind]
    with masters(Path(folder), int(count), topic) as (where, producing):
        say(where)
        say(send_at_rate(producing, bodies(), float(rate_per_s), line_awaited().wait))
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
