"""logtwin beside, and behind, a real slave of a real 5.5.0 master: what the master counts is what is true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.meanwhile import meanwhile
from tests.patience import wait_until
from tests.peers.cluster import Cluster, configured, connections_of, running_cluster
from tests.peers.replicating import (
    assert_holds,
    assert_same_as_files,
    end_of,
    replicating,
    wait_for_answer,
    wait_for_position,
)
from tests.peers.rocketmq import Broker
from tests.peers.sender import Sender

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]

OK, SLAVE_TIMEOUT = 0, 12
MESSAGES = 40
PATIENT_MS = 20_000  # of producers that are to be answered: some batches on a busy machine
SHORT_MS = 1000  # of producers that wait in vain


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Its slave has everything that the master has written so far, and does not run."""
    with running_cluster(tmp_path_factory.mktemp("beside"), slave_timeout_ms=PATIENT_MS) as cluster:
        cluster.slave.start()
        first = Sender(cluster.master.port, "first")
        wait_for_answer(lambda: first.send(1)[0], OK)
        cluster.slave.kill()
        yield cluster


@contextmanager
def watched(broker: Broker) -> Iterator[set[int]]:
    """How many connections the broker was seen to count, while the `with` lasts."""
    seen: set[int] = set()
    with meanwhile(lambda: seen.add(len(connections_of(broker))), every_s=0.005):
        yield seen


def codes_in_vain(cluster: Cluster, sender: Sender) -> Counter[int | None]:
    """The answers to some sends that wait for a slave which is not to come."""
    with configured(cluster.master, slaveTimeout=SHORT_MS):
        return Counter(one.code for one in sender.send(MESSAGES))


def test_reading_from_a_real_slave_leaves_the_master_alone(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """MS-20: master → slave → logtwin. The master waits for its slave, and hears nothing of logtwin."""
    sender = Sender(cluster.master.port, "chain")
    cluster.slave.start()
    with replicating(spark, tmp_path, cluster.slave) as job:
        wait_for_answer(lambda: sender.send(1)[0], OK)
        with watched(cluster.master) as seen:
            sent = sender.send(500)
            end = end_of(cluster.master)
            wait_for_position(job, end)
        assert Counter(one.code for one in sent) == {OK: 500}
        assert seen == {1}
        wait_until(lambda: [one["slaveAckOffset"] for one in connections_of(cluster.master)] == [end], "acknowledged")

        cluster.slave.kill()
        wait_until(lambda: connections_of(cluster.master) == [], "the slave gone")
        assert codes_in_vain(cluster, sender) == {SLAVE_TIMEOUT: MESSAGES}  # logtwin's word is not the master's to hear
        cluster.slave.start()
        wait_for_answer(lambda: sender.send(1)[0], OK)
        end = end_of(cluster.master)
        wait_for_position(job, end)
    cluster.slave.kill()
    assert_holds(tmp_path, sent, sender.topic)
    assert_same_as_files(spark, tmp_path, job, cluster.master)
