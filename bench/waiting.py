"""How long a producer waits for the lakehouse: a real SYNC_MASTER of 5.5.0, whose only replica is logtwin.

``inSyncReplicas = 2``, so the master answers no message before logtwin has acknowledged it, which it does once Delta
has it. PRODUCERS producers each send a message of 1 KB and wait for the answer before they send the next one, for 15 s
that do not count and 60 s that do. The job has its defaults. It has that log alone; or beside it 200 partitions of a
real Kafka broker and sixteen logs of embedded masters, which get 1,000 messages a second each in all. Goals are times,
not ratios: each round compares the measured time with the goal.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from pyspark.sql import SparkSession

from bench.arrived import TOPIC as OTHERS_TOPIC
from bench.contest import Figure, Settings, percentile
from bench.contestants import config_of
from bench.load import running_load
from bench.many_live import EMBEDDED, KAFKA, Masters, bound, running
from bench.peers import plain_session
from sources.access.address import Address
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from sources.rocketmq.wire.remoting import ResponseCode
from tests.peers.rocketmq import Broker

VERSION = "5.5.0"
PRODUCERS = 32
WARM_UP_S, MEASURED_S = 15, 60
BODY = bytes(1024)
TOPIC = "waiting"
P50_MS, P99_MS = 200, 500
OTHERS = {KAFKA: 200, EMBEDDED: 16}
OTHERS_RATE_PER_S = 1000
LOG_ID = "rocketmq/waiting"
_ANSWER_TIMEOUT_MS = 40_000  # until logtwin has joined, the master answers after its slaveTimeout
_SYNC: dict[str, str | int] = {
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": 2,
    "slaveTimeout": 30_000,
    "sendMessageThreadPoolNums": 64,
}


def measure(settings: Settings) -> Iterator[Figure]:
    with plain_session(settings.folder, {}) as spark:
        yield from _figures("logtwin alone", *_measured(spark, settings, {}))
        counts = {masters: settings.scaled(count, least=2) for masters, count in OTHERS.items()}
        others = f"logtwin, which has {OTHERS[KAFKA]} partitions and {OTHERS[EMBEDDED]} other logs"
        yield from _figures(others, *_measured(spark, settings, counts))


def _figures(whom: str, waited_ms: list[float], commits: int) -> Iterator[Figure]:
    for name, share, most_ms in (("p50", 0.5, P50_MS), ("p99", 0.99, P99_MS)):
        work, ours = f"{PRODUCERS} producers wait for {whom}, {name}", f"a real SYNC_MASTER {VERSION}"
        value = percentile(waited_ms, share)
        yield bound(work, ours, "ms", value, most_ms, messages=len(waited_ms), commits=commits)


def _measured(spark: SparkSession, settings: Settings, others: Mapping[Masters, int]) -> tuple[list[float], int]:
    """How long the producers waited, and the commits, in a job that has so many other logs, too."""
    folder = settings.folder / "waiting"
    with ExitStack() as opened:
        broker = opened.enter_context(Broker(VERSION, folder / "broker", _SYNC))
        listed: dict[str, list[Any]] = {"logs": [], "topics": []}
        for masters, count in others.items():
            load = running_load(masters.kind, folder / masters.kind, count, OTHERS_RATE_PER_S, OTHERS_TOPIC)
            for name, some in masters.listed(opened.enter_context(load).masters).items():
                listed[name] += some
        listed["logs"].append({"id": LOG_ID, **broker.options})
        run = opened.enter_context(running(spark, config_of(folder / "lake", metadata=False, **listed)))
        run.until(lambda: all(one.commits for one in run.progress() if one.log_id != LOG_ID))
        waited_ms = _waited_ms(broker.address, settings)
        commits = next(one.commits for one in run.progress() if one.log_id == LOG_ID)
    shutil.rmtree(folder)
    return waited_ms, commits


def _waited_ms(address: Address, settings: Settings) -> list[float]:
    """How long the producer of every message sent in the measured time waited, in ms."""
    begins_s = time.monotonic() + settings.scaled(WARM_UP_S, least=5)
    ends_s = begins_s + settings.scaled(MEASURED_S, least=5)
    is_ready = threading.Event()
    with ThreadPoolExecutor(PRODUCERS) as pool:
        sending = [pool.submit(_send, address, begins_s, ends_s, is_ready) for _ in range(PRODUCERS)]
        return [one for each in sending for one in each.result()]


def _send(address: Address, begins_s: float, ends_s: float, is_ready: threading.Event) -> list[float]:
    """Send messages one by one; the waiting times in ms.

    Raises SystemExit if a message is stored nowhere, or only by the master after logtwin has joined.
    """
    waited_ms: list[float] = []
    with Producer(address, answer_timeout_ms=_ANSWER_TIMEOUT_MS) as producer:
        while (sent_s := time.monotonic()) < ends_s:
            result = producer.send(OutgoingMessage(TOPIC, BODY))
            if result.code == ResponseCode.SUCCESS:
                is_ready.set()
            elif not result.is_stored or is_ready.is_set():
                raise SystemExit(f"waiting: a message came to {result}")
            if sent_s >= begins_s and is_ready.is_set():
                waited_ms.append((time.monotonic() - sent_s) * 1000)
    return waited_ms
