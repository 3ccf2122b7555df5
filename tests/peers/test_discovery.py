"""The brokers of a cluster, as a real name server lists them, and a job that replicates them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, parse
from pipeline.config.found import found_now
from pipeline.inspect.status import statuses
from sources.errors import MasterUnreachable
from tests.patience import eventually, wait_until
from tests.peers.replicating import assert_holds, end_of, running_job
from tests.peers.rocketmq import Broker
from tests.peers.rocketmq_process import NameServer
from tests.peers.sender import Sender

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[NameServer]:
    with NameServer("5.5.0", tmp_path / "name-server") as running:
        yield running


@pytest.fixture
def master(name_server: NameServer, tmp_path: Path) -> Iterator[Broker]:
    """The master b1; and of b2, only a slave is there."""
    common: dict[str, str | int] = {"namesrvAddr": name_server.address}
    left: dict[str, str | int] = {**common, "brokerName": "b2", "brokerId": 1, "brokerRole": "SLAVE"}
    with Broker("5.5.0", tmp_path / "b1", common) as broker, Broker("5.5.0", tmp_path / "b2", left):
        yield broker


def config_of(name_server: NameServer, warehouse: Path, **keys: Any) -> Config:
    cluster = {"cluster": "c1", "name_server": name_server.address, **keys}
    return parse({"warehouse": str(warehouse), "retry_wait_max_s": 1.0, "logs": [cluster]}, where="test")


def ids(config: Config) -> list[str]:
    return [one.id for one in config.logs]


def test_a_cluster_of_real_brokers_is_replicated(
    name_server: NameServer, master: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    """b2 has no master: it is a log that waits, and the others go on. It is a log when the name server is away, too."""
    lake = tmp_path / "lake"
    config = config_of(name_server, lake)
    assert eventually(lambda: ids(found_now(config)) == ["rocketmq/b1", "rocketmq/b2"])
    assert ids(found_now(config_of(name_server, lake, include=["b[13]"]))) == ["rocketmq/b1"]
    sender = Sender(master.port, "found")
    wait_until(lambda: sender.send(1)[0].is_ok, "a stored message")
    sent = sender.send(100)
    end = end_of(master)

    def has_all() -> bool:
        return any(one.log_id == "rocketmq/b1" and (one.position or 0) >= end for one in job.progress())

    waits = r"rocketmq/b2: the name server at .* knows no master of b2; .* found ids 1"
    with (
        pytest.raises(MasterUnreachable, match=waits),  # at the end, of the log that still waits
        running_job(spark, config) as job,
    ):
        wait_until(has_all, lambda: f"{end} in Delta: {job.progress()}")
    assert job.progress()[0].error is None
    assert_holds(lake, sent, "found")

    name_server.stop()
    (left,) = statuses(found_now(config))
    assert (left.log_id, (left.position or 0) >= end) == ("rocketmq/b1", True)
    assert left.master_error is not None
