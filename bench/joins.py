"""A fourth broker joins, and a topic appears, while a job replicates the others under load: all of them real.

Three RocketMQ brokers of a cluster, which a name server lists, and a Kafka topic of a pattern get messages of 1 KB at a
steady rate. Then a broker of that cluster starts, a topic of that pattern is created, and both get messages. Measured
are the time until each has its first rows, from its first stored message on, and how fresh the others are from the
moment of the change on, against as long a time before it. Every message must be in the tables once.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from kafka import KafkaProducer

from bench.arrived import TOPIC, Arrived, rates
from bench.contest import Figure, Goal, Settings
from bench.contestants import config_of
from bench.many_live import RunningJob, bound, compared, running
from bench.payloads import create_topic
from bench.peers import ON_CORES, lone_broker, plain_session
from bench.sender import LARGE_FILES, ROCKETMQ_VERSION, Producing, ToKafka, ToRocketMQ, random_bodies, send_at_rate
from pipeline.job.roll_call import ASK_EVERY_S
from sinks.tables import KAFKA_LOG, LOG
from sources.rocketmq.producer.producer import Producer
from tests.peers.rocketmq import Broker
from tests.peers.rocketmq_process import NameServer

BROKERS = 3
PARTITIONS = 6
COMES = "rocketmq/b4"
NEW_TOPIC = f"{TOPIC}-too"
RATE_PER_S = 300  # of the brokers together, and of the topic
RATE_OF_NEW_PER_S = 50
WARM_UP_S, MEASURED_S = 10, 45  # longer than a job takes to ask again what there is
FIRST_ROWS_S = 60
UNDISTURBED = Goal(most=1.3)
_BY_BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}


def measure(settings: Settings) -> Iterator[Figure]:
    lake = settings.folder / "lake"
    with ExitStack() as opened:
        names = opened.enter_context(NameServer(ROCKETMQ_VERSION, settings.folder / "names"))
        brokers = [opened.enter_context(_broker(settings.folder, names, number)) for number in range(1, BROKERS + 1)]
        server = opened.enter_context(lone_broker(settings.folder))
        create_topic(server, TOPIC, PARTITIONS, _BY_BROKER_TIME)
        load = opened.enter_context(_Load())
        load.send(opened.enter_context(_to_brokers(*brokers)), RATE_PER_S)
        through = opened.enter_context(closing(KafkaProducer(bootstrap_servers=server)))
        load.send(ToKafka(through, TOPIC, PARTITIONS), RATE_PER_S)
        spark = opened.enter_context(plain_session(settings.folder, ON_CORES))
        config = config_of(
            lake,
            logs=[{"cluster": "c1", "name_server": names.address}],
            topics=[{"cluster": "bench", "pattern": f"{TOPIC}.*", "servers": server}],
        )
        with running(spark, config) as run:
            run.until(run.have_all_begun)
            time.sleep(settings.scaled(WARM_UP_S, least=2))
            before_ms = time.time() * 1000
            time.sleep(settings.scaled(MEASURED_S, least=5))
            joins_ms = time.time() * 1000
            joining = opened.enter_context(_broker(settings.folder, names, BROKERS + 1))
            load.send(opened.enter_context(_to_brokers(joining)), RATE_OF_NEW_PER_S)
            create_topic(server, NEW_TOPIC, PARTITIONS, _BY_BROKER_TIME)
            load.send(ToKafka(through, NEW_TOPIC, PARTITIONS), RATE_OF_NEW_PER_S)
            begun_s = _begun_s(run, COMES, f"kafka/bench/{NEW_TOPIC}")
            time.sleep(max(0.0, settings.scaled(MEASURED_S, least=5) - (time.time() - joins_ms / 1000)))
            end_ms = time.time() * 1000
            stored = load.stop()
            run.until(lambda: sum(one.records or 0 for one in run.progress()) >= stored)
            found = {
                "brokers": _of_others(Arrived(LOG.path(str(lake)), "store_timestamp")),
                "topic": _of_others(Arrived(KAFKA_LOG.path(str(lake)), "timestamp")),
            }
    shutil.rmtree(settings.folder / "lake")
    for what, taken_s in begun_s.items():
        details = {"asks_every_s": ASK_EVERY_S, "broker": ROCKETMQ_VERSION}
        yield bound(f"{what} comes under load, first rows", what, "s", taken_s, FIRST_ROWS_S, **details)
    for what, rows in found.items():
        before, after = rates(rows, before_ms, joins_ms), rates(rows, joins_ms, end_ms)
        others = f"the other {what}" if what == "brokers" else f"the other {what}'s partitions"
        fresh = ("freshness p99", "ms", UNDISTURBED, float(after["p99_ms"]), float(before["p99_ms"]))
        work = "a broker joins and a topic appears under load"
        yield from compared(f"{work}, {others}", "from then on", "before", fresh, before=before, after=after)


class _Load:
    """Sends messages from threads of its own, until it is stopped."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(4)
        self._over = threading.Event()
        self._sending: list[Future[int]] = []

    def __enter__(self) -> _Load:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._pool.shutdown()

    def send(self, producing: Producing, rate_per_s: float) -> None:
        self._sending.append(self._pool.submit(send_at_rate, producing, random_bodies(), rate_per_s, self._over.wait))

    def stop(self) -> int:
        """How many messages are stored in all. Raises SystemExit if one was refused."""
        self._over.set()
        return sum(one.result() for one in self._sending)


@contextmanager
def _to_brokers(*brokers: Broker) -> Iterator[ToRocketMQ]:
    with ExitStack() as opened:
        yield ToRocketMQ([opened.enter_context(Producer(one.address)) for one in brokers], TOPIC)


def _broker(folder: Path, names: NameServer, number: int) -> Broker:
    settings: dict[str, str | int] = {"namesrvAddr": names.address, "brokerName": f"b{number}"}
    return Broker(ROCKETMQ_VERSION, folder / f"b{number}", LARGE_FILES | settings)


def _begun_s(run: RunningJob, broker: str, topic: str) -> dict[str, float]:
    """How long it takes until both have rows, from now on."""
    since_s, found = time.monotonic(), dict[str, float]()
    names = {broker: "a fourth broker", topic: "a topic"}

    def have_begun() -> bool:
        for one in run.progress():
            if one.log_id in names and one.records:
                found.setdefault(names[one.log_id], round(time.monotonic() - since_s, 1))
        return len(found) == len(names)

    run.until(have_begun)
    return found


def _of_others(arrived: Arrived) -> pa.Table:
    """The messages of who was there before. Raises SystemExit if one of them came twice."""
    found = arrived.each_once(arrived.look())
    return found.filter(pc.not_equal(found["log_id"], COMES))
