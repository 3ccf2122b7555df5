"""Two replicas of one real broker, each with a warehouse of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sources.access.address import Address
from sources.rocketmq.producer.workload import send_workload, workload
from tests.patience import wait_until
from tests.peers.cluster import connections_of
from tests.peers.replicating import assert_same_as_files, end_of, replicating, wait_for_all
from tests.peers.rocketmq import Broker

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]


def test_two_replicas_of_one_broker_are_both_complete(spark: SparkSession, broker_550: Broker, tmp_path: Path) -> None:
    """The broker counts both, each with its own acknowledgement."""
    remoting = Address("127.0.0.1", broker_550.port)
    send_workload(remoting, workload(8), count=1000)
    with (
        replicating(spark, tmp_path / "one", broker_550) as one,
        replicating(spark, tmp_path / "other", broker_550) as other,
    ):
        send_workload(remoting, workload(9), count=1000)
        for job in (one, other):
            wait_for_all(job, broker_550)
        end = end_of(broker_550)
        wait_until(lambda: acknowledged_by(broker_550) == [end, end], "both acknowledged")
    for job, warehouse in ((one, "one"), (other, "other")):
        assert_same_as_files(spark, tmp_path / warehouse, job, broker_550)


def acknowledged_by(broker: Broker) -> list[int]:
    return [slave["slaveAckOffset"] for slave in connections_of(broker)]
