"""What must hold for producers that wait for logtwin alone, of whatever version their broker is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from tests.patience import wait_until
from tests.peers.cluster import Cluster, connections_of
from tests.peers.replicating import (
    assert_holds,
    assert_same_as_files,
    replicating,
    wait_for_all,
    wait_for_answer,
)
from tests.peers.sender import Sender, Sent

MESSAGES = 2000
RATE_PER_S = 400
OK = 0
SLAVE_TIMEOUT_MS = 10_000
"""Three times the default: on a busy machine a batch takes as long as that, and who waits is what is tested."""
IN_VAIN_MS = 1000
"""Of producers that wait for a slave that is not to come."""


def check_all_answered(
    spark: SparkSession,
    cluster: Cluster,
    warehouse: Path,
    report: Callable[[str], None],
    *,
    is_slave_measured: bool = True,
) -> None:
    """2,000 sends are answered SEND_OK and are in Delta. The same with a real slave, for the record."""
    sender = Sender(cluster.master.port, "waits")
    by_slave: list[Sent] = []
    if is_slave_measured:
        cluster.slave.start()
        by_slave = _measured(sender)
        cluster.slave.kill()

    with replicating(spark, warehouse, cluster.master) as job:
        by_logtwin = _measured(sender)
        wait_for_all(job, cluster.master)

    assert Counter(one.code for one in by_logtwin) == {OK: MESSAGES}
    assert Counter(one.code for one in by_slave) == Counter({OK: MESSAGES} if is_slave_measured else {})
    assert_holds(warehouse, by_slave + by_logtwin, sender.topic)
    assert_same_as_files(spark, warehouse, job, cluster.master)
    for replica, sent in (("a RocketMQ slave", by_slave), ("logtwin, 1 s trigger", by_logtwin)):
        if not sent:
            continue
        p50_ms, p99_ms = _percentiles_ms(sent)
        assert 0 < p50_ms <= p99_ms
        report(f"waiting send, {cluster.version}, {replica}: p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms")


def _measured(sender: Sender) -> list[Sent]:
    """2,000 sends, once three in a row were answered OK."""
    wait_for_answer(lambda: sender.send(1)[0], OK)
    return sender.send(MESSAGES, rate_per_s=RATE_PER_S)


def _percentiles_ms(sent: list[Sent]) -> tuple[float, float]:
    """p50 and p99 of the time from sending to the answer."""
    p50, p99 = np.percentile([one.latency_s * 1000 for one in sent], [50, 99])
    return float(p50), float(p99)


def check_recovery(spark: SparkSession, cluster: Cluster, warehouse: Path) -> None:
    """Without logtwin the broker says so to each producer, with it again it is OK again; twice."""
    sender = Sender(cluster.master.port, "recovers")
    sent: list[Sent] = []

    def send() -> Sent:
        sent.extend(sender.send(1))
        return sent[-1]

    for _ in range(2):
        with replicating(spark, warehouse, cluster.master) as job:
            wait_for_answer(send, OK)
            wait_for_all(job, cluster.master)
        if cluster.counts_connections:
            assert connections_of(cluster.master) == []
        alone = _in_vain(cluster, sender)
        assert Counter(one.code for one in alone) == {cluster.without_slave: 20}
        sent += alone
    with replicating(spark, warehouse, cluster.master) as job:
        wait_for_all(job, cluster.master)
    assert_holds(warehouse, sent, sender.topic)
    # and, OK or not: what the broker has stored is in Delta
    assert_same_as_files(spark, warehouse, job, cluster.master)


def _in_vain(cluster: Cluster, sender: Sender) -> list[Sent]:
    """20 sends that no slave takes."""
    cluster.set_slave_timeout(IN_VAIN_MS)
    try:
        return sender.send(20)
    finally:
        cluster.set_slave_timeout(SLAVE_TIMEOUT_MS)


def check_killed_broker(spark: SparkSession, cluster: Cluster, warehouse: Path) -> None:
    """kill -9 in the middle of 2,000 sends, restarted on its store: what was answered OK is there, nothing twice."""
    sender = Sender(cluster.master.port, "killed")
    with replicating(spark, warehouse, cluster.master) as job, ThreadPoolExecutor(1) as pool:
        wait_for_answer(lambda: sender.send(1)[0], OK)
        before = sender.answers
        sending = pool.submit(sender.send, MESSAGES)
        wait_until(lambda: sender.answers >= before + MESSAGES // 3, "a third of the answers")
        cluster.master.kill()
        cluster.master.start()
        sent = sending.result(120)
        wait_for_answer(lambda: sender.send(1)[0], OK)  # without anybody's help
        wait_for_all(job, cluster.master)
    codes = Counter(one.code for one in sent)
    assert codes[OK] >= MESSAGES // 3
    assert codes[None] > 0  # some were under way
    assert set(codes) <= {OK, None, 11, 12}
    assert_holds(warehouse, sent, sender.topic)
    assert_same_as_files(spark, warehouse, job, cluster.master)
