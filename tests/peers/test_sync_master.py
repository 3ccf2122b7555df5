"""SYNC_MASTER brokers whose producers wait for logtwin alone: the acknowledgement of a batch that is in Delta."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from tests.peers.cluster import Cluster, running_cluster
from tests.peers.conftest import Report
from tests.peers.replicating import (
    assert_holds,
    assert_same_as_files,
    replicating,
    wait_for_all,
    wait_for_answer,
)
from tests.peers.sender import Sender, Sent
from tests.peers.waiting_producers import MESSAGES, OK, check_killed_broker, check_recovery

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.timeout(300)]

RATE_PER_S = 400

not_all_versions = pytest.mark.parametrize("cluster", ["4.9.7", "5.5.0"], indirect=True)
"""5.3.3 waits for slaves as 5.5.0 does; `make soak` has it."""


@pytest.fixture(scope="module", params=["4.9.7", "5.3.3", "5.5.0"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master of each version in turn, its slave not running."""
    with running_cluster(request.param, tmp_path_factory.mktemp(f"cluster-{request.param}")) as cluster:
        yield cluster


def measured(sender: Sender) -> list[Sent]:
    """2,000 sends, once three in a row were answered OK."""
    wait_for_answer(lambda: sender.send(1)[0], OK)
    return sender.send(MESSAGES, rate_per_s=RATE_PER_S)


def percentiles_ms(sent: list[Sent]) -> tuple[float, float]:
    """p50 and p99 of the time from sending to the answer."""
    p50, p99 = np.percentile([one.latency_s * 1000 for one in sent], [50, 99])
    return float(p50), float(p99)


def test_two_thousand_producers_wait_for_the_lakehouse_alone(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, report: Report
) -> None:
    """MS-01, MS-06, MS-09: all are answered SEND_OK and are in Delta. A real slave beside it, for the record."""
    sender = Sender(cluster.master.port, "waits")
    cluster.slave.start()
    by_slave = measured(sender)
    cluster.slave.kill()

    with replicating(spark, tmp_path, cluster.master) as job:
        by_logtwin = measured(sender)
        wait_for_all(job, cluster.master)

    assert Counter(one.code for one in by_logtwin) == {OK: MESSAGES}
    assert Counter(one.code for one in by_slave) == {OK: MESSAGES}
    assert_holds(tmp_path, by_slave + by_logtwin, sender.topic)
    assert_same_as_files(spark, tmp_path, job, cluster.master)
    for replica, sent in (("a RocketMQ slave", by_slave), ("logtwin, 1 s trigger", by_logtwin)):
        p50_ms, p99_ms = percentiles_ms(sent)
        assert 0 < p50_ms <= p99_ms
        report(f"waiting send, {cluster.version}, {replica}: p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms")


@not_all_versions
def test_without_logtwin_the_broker_says_so_and_with_it_recovers(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """MS-04, MS-05, MS-07, MS-09: 4.9.7 does not wait without a slave, 5.x does, in vain; both store the message."""
    check_recovery(spark, cluster, tmp_path)


@not_all_versions
def test_a_killed_broker_loses_no_message_that_was_answered(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """HA-60, HA-69: the producers connect again, and so does logtwin."""
    check_killed_broker(spark, cluster, tmp_path)
