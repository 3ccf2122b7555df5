"""The brokers of a cluster, as a real name server lists them, and a job that replicates them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, parse
from pipeline.config.found import found_for_job, found_now
from pipeline.inspect.status import statuses
from sources.errors import MasterUnreachable
from tests.patience import eventually, wait_until
from tests.peers.name_server import NameServer
from tests.peers.replicating import assert_holds, end_of, running_job
from tests.peers.rocketmq import Broker
from tests.peers.sender import Sender

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]


@dataclass
class Site:
    """A name server with a master b1, and with b2, of which only a slave is there."""

    name_server: NameServer
    master: Broker
    slave: Broker

    def config(self, warehouse: Path, **keys: Any) -> Config:
        cluster = {"cluster": "c1", "name_server": self.name_server.address, **keys}
        job = {"warehouse": str(warehouse), "retry_wait_max_s": 1.0, "logs": [cluster]}
        return parse(job, where="test")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("site")
    with ExitStack() as stack:
        server = stack.enter_context(NameServer("5.5.0", home / "name-server"))
        common: dict[str, str | int] = {"namesrvAddr": server.address}
        master = stack.enter_context(Broker("5.5.0", home / "b1", common))
        left: dict[str, str | int] = {**common, "brokerName": "b2", "brokerId": 1, "brokerRole": "SLAVE"}
        yield Site(server, master, stack.enter_context(Broker("5.5.0", home / "b2", left)))


def ids(config: Config) -> list[str]:
    return [one.id for one in config.logs]


def test_a_cluster_of_real_brokers_is_replicated(site: Site, spark: SparkSession, tmp_path: Path) -> None:
    """b2 has no master: it is a log that waits, and the others go on. It is a log when the name server is away, too."""
    config = site.config(tmp_path)
    assert eventually(lambda: ids(found_now(config)) == ["rocketmq/b1", "rocketmq/b2"])
    assert ids(found_now(site.config(tmp_path, include=["b[13]"]))) == ["rocketmq/b1"]
    sender = Sender(site.master.port, "found")
    wait_until(lambda: sender.send(1)[0].is_ok, "a stored message")
    sent = sender.send(100)
    end = end_of(site.master)

    def has_all() -> bool:
        return any(one.log_id == "rocketmq/b1" and (one.position or 0) >= end for one in job.progress())

    waits = r"rocketmq/b2: the name server at .* knows no master of b2; .* found ids 1"
    with (
        pytest.raises(MasterUnreachable, match=waits),  # at the end, of the log that still waits
        running_job(spark, found_for_job(config, available_now=False)) as job,
    ):
        wait_until(has_all, lambda: f"{end} in Delta: {job.progress()}")
    assert job.progress()[0].error is None
    assert_holds(tmp_path, sent, "found")

    site.name_server.stop()
    (left,) = statuses(found_now(config))
    assert (left.log_id, (left.position or 0) >= end) == ("rocketmq/b1", True)
    assert left.master_error is not None
