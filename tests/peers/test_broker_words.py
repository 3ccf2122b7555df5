"""What real brokers say of themselves is what logtwin makes of it; one whose log is a DLedger one is refused."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.job.replicate import Job
from sources.datasource import register
from sources.errors import ConfigurationError
from sources.master import Session
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.broker_words import counted_for_s, ha_address
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from sources.rocketmq.wire.client import RemotingClient
from sources.rocketmq.wire.remoting import ResponseCode
from tests.patience import eventually, wait_until
from tests.peers.cluster import HOUSEKEEPING_MS, configured, connections_of, counting
from tests.peers.rocketmq import Broker
from tests.peers.rocketmq_process import free_ports
from tests.pipeline.running import job_config
from tests.sources.rocketmq.sessions import up_to

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]


def test_what_a_broker_says_of_itself_is_its_view(each_broker: Broker) -> None:
    with RemotingClient(each_broker.address) as client:
        config, used = client.broker_config(), [float(client.runtime_info()["commitLogDiskRatio"])]
        view = each_broker.opened().view()
        used.append(float(client.runtime_info()["commitLogDiskRatio"]))

    assert ha_address(config) == each_broker.ha_address
    assert counted_for_s(config) is None
    assert counted_for_s({**config, "inSyncReplicas": "3"}) == 22.0
    assert view.role == config["brokerRole"] == ("ASYNC_MASTER" if each_broker.version == "4.9.7" else "SYNC_MASTER")
    assert view.retention is not None
    assert (view.retention.file_size_bytes, view.retention.keeps_s) == (1024 * 1024, 72 * 3600.0)
    total_bytes = shutil.disk_usage(each_broker.store).total
    most, least = (max(0.85 - share, 0.0) * total_bytes for share in used)  # files go on a disk that is 85 % full
    assert min(most, least) * 0.99 <= (view.retention.room_bytes or 0) <= max(most, least) * 1.01
    assert view.retention.until_loss(view.bounds, view.bounds.end, age_s=0.0, growth_bytes_per_s=1.0) is None
    assert view.bounds.start == Offset(0)


@pytest.mark.spark
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


# a broker that waits for two slaves counts connections: one replica must never be two of them


MESSAGES = 96
BATCHES = 10


@pytest.fixture(scope="module")
def broker(broker_550: Broker) -> Iterator[Broker]:
    with configured(broker_550, inSyncReplicas=3, slaveTimeout=1000, haHousekeepingInterval=HOUSEKEEPING_MS):
        wait_until(lambda: connections_of(broker_550) == [], "the end of others' connections")
        yield broker_550


def read_batch(log: RocketMQLog, session: Session, position: Offset) -> Offset:
    """One batch as the job does it: read in the tasks' turn, commit, acknowledge."""
    end = log.bounds().end
    with session.reading():
        chunks = list(log.read(OffsetRange(position, end), committed=position, boundary=True))
    if chunks:
        position = chunks[-1].covered.end
    session.acknowledge(up_to(position, log.log_id))
    return position


def send_waiting(broker: Broker, codes: list[int]) -> None:
    with Producer(broker.address, window=32) as producer:
        codes += [one.code for one in producer.send_all([OutgoingMessage("turns", b"x" * 500)] * MESSAGES)]


def test_one_replica_is_counted_once(broker: Broker) -> None:
    log = broker.opened()
    codes: list[int] = []
    position = log.bounds().end
    sender = threading.Thread(target=send_waiting, args=(broker, codes))
    with closing(log.open_session()) as session, counting(broker) as counts:
        sender.start()
        batches = 0
        while sender.is_alive() or batches < BATCHES:
            position = read_batch(log, session, position)
            batches += 1
        sender.join()
        position = read_batch(log, session, position)
        assert eventually(lambda: log.acknowledged_by_master() == {log.log_id: position})
        assert session.state.reconnects == 0

    assert codes == [ResponseCode.FLUSH_SLAVE_TIMEOUT] * MESSAGES  # stored, and no replica but this one
    assert set(counts) == {0, 1}
    assert position == log.bounds().end
