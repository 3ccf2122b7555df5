"""What tests/peers has, longer and with the versions that it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sources.access.address import Address
from sources.rocketmq.producer.workload import send_workload, workload
from tests.peers.proxy import Proxy
from tests.peers.replicating import assert_same_as_files, replicate_over_cuts, replicating, wait_for_all
from tests.peers.rocketmq import Broker

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

CUTS = 100
MESSAGES = 20_000
PATIENCE_S = 900.0


@pytest.fixture(scope="module", params=["4.9.7", "5.3.3", "5.5.0"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of each version in turn, with a mixed log."""
    with Broker(request.param, tmp_path_factory.mktemp(f"soak-{request.param}")) as broker:
        send_workload(Address("127.0.0.1", broker.port), workload(12), count=MESSAGES)
        yield broker


def test_a_job_whose_connections_are_cut_a_hundred_times(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """HA-69."""
    replicate_over_cuts(spark, tmp_path, broker, CUTS, PATIENCE_S)


@pytest.mark.parametrize("delay_s", [0.002, 0.05])
def test_a_job_over_a_slow_network(spark: SparkSession, broker: Broker, tmp_path: Path, delay_s: float) -> None:
    with Proxy(broker.ha_port, delay_s=delay_s) as ha, Proxy(broker.port, delay_s=delay_s) as remoting:
        ways = {"master": f"127.0.0.1:{ha.port}", "remoting": f"127.0.0.1:{remoting.port}"}
        with replicating(spark, tmp_path, broker, trigger_interval_s=0.1, **ways) as job:
            wait_for_all(job, broker, PATIENCE_S)
    assert_same_as_files(spark, tmp_path, job, broker)
