"""A live RocketMQ 5.5.0 broker is replicated while it is written to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.job.replicate import Job
from sources.access.address import Address
from sources.datasource import register
from sources.rocketmq.producer.workload import WorkloadSummary, send_workload, workload
from sources.rocketmq.wire.client import RemotingClient
from tests.peers.replicating import assert_same_as_files
from tests.peers.rocketmq import Broker
from tests.pipeline.running import job_config, log_table

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(600)]


COUNT = 50_000


@pytest.fixture
def broker_550(tmp_path: Path) -> Iterator[Broker]:
    """One that holds nothing else."""
    with Broker("5.5.0", tmp_path / "broker") as broker:
        yield broker


def test_messages_while_the_job_runs(spark: SparkSession, broker_550: Broker, tmp_path: Path) -> None:
    register(spark)
    remoting = Address("127.0.0.1", broker_550.port)
    lake = tmp_path / "lake"
    config = job_config(lake, master=f"127.0.0.1:{broker_550.ha_port}", remoting=str(remoting))
    job = Job(spark, config, available_now=False)
    summaries: list[WorkloadSummary] = []
    producer = threading.Thread(target=lambda: summaries.append(send_workload(remoting, workload(11), count=COUNT)))
    job.start()
    producer.start()
    acknowledged: list[int | None] = []

    def go_on(_: object) -> bool:
        if producer.is_alive():
            return True
        progress = job.progress()[0]
        with RemotingClient(remoting) as client:
            end = client.commit_log_bounds().end
            slaves = (client.ha_status() or {}).get("haConnectionInfo", [])
        acknowledged[:] = [max((slave["slaveAckOffset"] for slave in slaves), default=None)]
        return progress.position != end or acknowledged != [end]

    job.run(go_on)
    producer.join()
    progress = job.progress()[0]
    assert summaries[0].messages == COUNT
    # what the broker counts as acknowledged is the table's position, and that is the end of its log
    assert acknowledged == [progress.position]

    table = log_table(spark, lake).where("kind = 'message'")
    assert table.select(F.countDistinct("offset")).head() == (table.count(),)
    sent = table.where("topic NOT LIKE 'rmq_sys%' AND topic NOT LIKE 'RMQ_SYS%' AND topic <> 'OFFSET_MOVED_EVENT'")
    assert sent.count() == COUNT
    # in order, per queue, without hole or repeat
    queues = table.groupBy("topic", "queue_id").agg(
        F.count("*").alias("n"), F.countDistinct("queue_offset").alias("d"),
        F.min("queue_offset").alias("low"), F.max("queue_offset").alias("high"),
    )  # fmt: skip
    assert queues.where("n <> d OR low <> 0 OR high <> n - 1").count() == 0
    assert_same_as_files(spark, lake, job, broker_550)
