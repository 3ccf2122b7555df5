"""SYNC_MASTER brokers whose producers wait for logtwin alone: the acknowledgement of a batch that is in Delta."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.peers.cluster import Cluster, running_cluster
from tests.peers.conftest import Report
from tests.peers.waiting_producers import SLAVE_TIMEOUT_MS, check_all_answered, check_killed_broker, check_recovery

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master, its slave not running. `make soak` has 5.3.3, too, which waits as 5.5.0 does, and 4.9.7.

    How 4.9.7 waits for a session alone: `test_ha_client.py`.
    """
    home = tmp_path_factory.mktemp("cluster")
    with running_cluster("5.5.0", home, slave_timeout_ms=SLAVE_TIMEOUT_MS) as cluster:
        yield cluster


def test_two_thousand_producers_wait_for_the_lakehouse_alone(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, report: Report
) -> None:
    """MS-01, MS-06, MS-09."""
    check_all_answered(spark, cluster, tmp_path, report, is_slave_measured=False)


def test_without_logtwin_the_broker_says_so_and_with_it_recovers(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """MS-04, MS-05, MS-07, MS-09: 4.9.7 does not wait without a slave, 5.x does, in vain; both store the message."""
    check_recovery(spark, cluster, tmp_path)


def test_a_killed_broker_loses_no_message_that_was_answered(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """HA-60, HA-69: the producers connect again, and so does logtwin."""
    check_killed_broker(spark, cluster, tmp_path)
