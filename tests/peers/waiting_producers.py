"""What must hold for producers that wait for logtwin alone, of whatever version their broker is."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
OK = 0


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
        alone = sender.send(20)
        assert Counter(one.code for one in alone) == {cluster.without_slave: 20}
        sent += alone
    with replicating(spark, warehouse, cluster.master) as job:
        wait_for_all(job, cluster.master)
    assert_holds(warehouse, sent, sender.topic)
    # and, OK or not: what the broker has stored is in Delta
    assert_same_as_files(spark, warehouse, job, cluster.master)


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
