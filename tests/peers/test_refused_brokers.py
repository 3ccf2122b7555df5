"""Real brokers whose log is another one: recognised when a job starts, and refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.job.replicate import Job
from sources.datasource import register
from sources.errors import ConfigurationError
from tests.peers.rocketmq import Broker
from tests.peers.rocketmq_process import free_ports
from tests.pipeline.running import job_config

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.timeout(180)]


@contextmanager
def dledger_broker(version: str, home: Path) -> Iterator[Broker]:
    """A broker whose log is a DLedger one, alone in its group."""
    port, _ = free_ports()
    settings = {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": "b1",
        "dLegerPeers": f"n0-127.0.0.1:{port}",
        "dLegerSelfId": "n0",
    }
    with Broker(version, home, settings) as broker:
        yield broker


def refusal(spark: SparkSession, broker: Broker, warehouse: Path) -> ConfigurationError:
    register(spark)
    addresses = {"master": f"127.0.0.1:{broker.ha_port}", "remoting": f"127.0.0.1:{broker.port}"}
    job = Job(spark, job_config(warehouse, **addresses), available_now=False)
    with pytest.raises(ConfigurationError) as caught:
        job.start()
    assert not (warehouse / "log").exists()
    return caught.value


@pytest.mark.parametrize("version", [pytest.param("4.9.7", marks=pytest.mark.nightly), "5.5.0"])
def test_a_broker_in_dledger_mode_is_refused(spark: SparkSession, tmp_path: Path, version: str) -> None:
    with dledger_broker(version, tmp_path) as broker:
        error = refusal(spark, broker, tmp_path / "lake")
    assert "DLedger mode" in error.problem
    assert error.found == "enableDLegerCommitLog=true"
    assert "controller mode" in (error.hint or "")
