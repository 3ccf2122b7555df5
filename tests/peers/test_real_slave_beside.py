"""logtwin beside, and behind, a real slave of a real 5.5.0 master: what the master counts is what is true."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.patience import meanwhile, wait_until
from tests.peers.cluster import configured, connections_of, knows
from tests.peers.replicating import (
    assert_holds,
    assert_same_as_files,
    end_of,
    replicating,
    wait_for_answer,
    wait_for_position,
)
from tests.peers.rocketmq import Broker
from tests.peers.rocketmq_process import NameServer
from tests.peers.sender import Sender

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]

OK, SLAVE_TIMEOUT = 0, 12
MESSAGES = 40
PATIENT_MS = 20_000  # of producers that are to be answered: some batches on a busy machine
SHORT_MS = 1000  # of producers that wait in vain


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    """A master of which producers wait for a slave, and its slave.

    That has everything that the master has written so far, and does not run. One that starts on an empty store asks for
    the last segment file: for a full copy its first start must come while the master has written but one.
    """
    with NameServer("5.5.0", tmp_path / "names") as names:
        shared: dict[str, str | int] = {
            "namesrvAddr": names.address,
            "haSendHeartbeatInterval": 1000,  # a slave's first report comes so late
            "slaveTimeout": PATIENT_MS,
        }
        waits: dict[str, str | int] = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}
        with Broker("5.5.0", tmp_path / "master", shared | waits) as master:
            wait_until(lambda: knows(names, master), "the master at the name server")
            with Broker("5.5.0", tmp_path / "slave", shared | {"brokerRole": "SLAVE", "brokerId": 1}) as slave:
                first = Sender(master.port, "first")
                wait_for_answer(lambda: first.send(1)[0], OK)
                slave.kill()
                yield master, slave


def test_reading_from_a_real_slave_leaves_the_master_alone(
    spark: SparkSession, cluster: tuple[Broker, Broker], tmp_path: Path
) -> None:
    """MS-20: master → slave → logtwin. The master waits for its slave, and hears nothing of logtwin."""
    master, slave = cluster
    sender = Sender(master.port, "chain")
    slave.start()
    with replicating(spark, tmp_path / "lake", slave) as job:
        wait_for_answer(lambda: sender.send(1)[0], OK)
        seen: set[int] = set()
        with meanwhile(lambda: seen.add(len(connections_of(master))), every_s=0.005):
            sent = sender.send(500)
            end = end_of(master)
            wait_for_position(job, end)
        assert Counter(one.code for one in sent) == {OK: 500}
        assert seen == {1}
        wait_until(lambda: [one["slaveAckOffset"] for one in connections_of(master)] == [end], "acknowledged")

        slave.kill()
        wait_until(lambda: connections_of(master) == [], "the slave gone")
        with configured(master, slaveTimeout=SHORT_MS):
            in_vain = Counter(one.code for one in sender.send(MESSAGES))
        assert in_vain == {SLAVE_TIMEOUT: MESSAGES}  # logtwin's word is not the master's to hear
        slave.start()
        wait_for_answer(lambda: sender.send(1)[0], OK)
        end = end_of(master)
        wait_for_position(job, end)
    slave.kill()
    assert_holds(tmp_path / "lake", sent, sender.topic)
    assert_same_as_files(tmp_path / "lake", job, master)
