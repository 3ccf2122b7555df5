"""How long a producer waits for the lakehouse: a real SYNC_MASTER of 5.5.0, whose only replica is logtwin.

``inSyncReplicas = 2``, so the master answers no message before logtwin has acknowledged it, which it does once Delta
has it. PRODUCERS producers each send a message of 1 KB and wait for the answer before they send the next one, for 15 s
that do not count and 60 s that do. The job has its defaults. Goals are times, not ratios: each round compares the
measured time with the goal.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from bench.contest import Figure, Goal, Round, Settings, percentile
from bench.contestants import config_of
from bench.many_live import running
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
_SYNC: dict[str, str | int] = {
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": 2,
    "slaveTimeout": 30_000,
    "sendMessageThreadPoolNums": 64,
}


def measure(settings: Settings) -> Iterator[Figure]:
    with plain_session(settings.folder, {}) as spark, Broker(VERSION, settings.folder / "broker", _SYNC) as broker:
        addresses = {"master": f"127.0.0.1:{broker.ha_port}", "remoting": f"127.0.0.1:{broker.port}"}
        config = config_of(settings.folder / "lake", logs=[{"id": "rocketmq/waiting", **addresses}])
        with running(spark, config) as run:
            address = Address.parse(f"127.0.0.1:{broker.port}")
            waited_ms = _waited_ms(address, settings)
            commits = sum(one.commits for one in run.progress())
    for name, share, most_ms in (("p50", 0.5, P50_MS), ("p99", 0.99, P99_MS)):
        yield Figure(
            work=f"{PRODUCERS} producers wait for logtwin alone, {name}",
            ours=f"a real SYNC_MASTER {VERSION}",
            against=f"the goal of {most_ms} ms",
            unit="ms",
            rounds=(Round(percentile(waited_ms, share), float(most_ms)),),
            goal=Goal(most=1.0),
            details={"messages": len(waited_ms), "commits": commits},
        )


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
    with Producer(address) as producer:
        while (sent_s := time.monotonic()) < ends_s:
            result = producer.send(OutgoingMessage(TOPIC, BODY))
            if result.code == ResponseCode.SUCCESS:
                is_ready.set()
            elif not result.is_stored or is_ready.is_set():
                raise SystemExit(f"waiting: a message came to {result}")
            if sent_s >= begins_s and is_ready.is_set():
                waited_ms.append((time.monotonic() - sent_s) * 1000)
    return waited_ms
