"""A real broker whose log is a DLedger one, alone in its group: recognised when a job starts, and refused."""

from __future__ import annotations

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


@pytest.mark.parametrize("version", [pytest.param("4.9.7", marks=pytest.mark.nightly), "5.5.0"])
def test_a_broker_in_dledger_mode_is_refused(spark: SparkSession, tmp_path: Path, version: str) -> None:
    register(spark)
    settings = {"enableDLegerCommitLog": "true", "dLegerGroup": "b1", "dLegerSelfId": "n0"}
    peers = {"dLegerPeers": f"n0-127.0.0.1:{free_ports()[0]}"}
    with Broker(version, tmp_path, settings | peers) as broker:
        job = Job(spark, job_config(tmp_path / "lake", **broker.options), available_now=False)
        with pytest.raises(ConfigurationError) as caught:
            job.start()
    assert not (tmp_path / "lake" / "log").exists()
    error = caught.value
    assert "DLedger mode" in error.problem
    assert error.found == "enableDLegerCommitLog=true"
    assert "controller mode" in (error.hint or "")
