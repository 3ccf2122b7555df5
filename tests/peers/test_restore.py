"""Disaster recovery: the replica becomes a master again, a real one and an embedded one."""

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.operate.rebuild import CommitLogRebuild
from sources.offsets import LogId
from sources.options import ReadOptions
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from tests.patience import wait_until
from tests.peers.replicating import end_of
from tests.peers.rocketmq import Broker
from tests.peers.wire import Connection
from tests.pipeline.running import job_config, replicate_now
from tests.sources.rocketmq.log_reading import read
from tests.truth import Fixture

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def rebuilt(spark: SparkSession, fixture_550: Fixture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commit log of a broker that is gone, out of the tables. Not to be changed."""
    home = tmp_path_factory.mktemp("restore")
    replicate_now(spark, job_config(home / "lake", path=str(fixture_550.commitlog_path)))
    source = CommitLogRebuild(spark, str(home / "lake"), ReadOptions(id="rocketmq/test", path="/gone/with/the/broker"))
    source.write(home / "commitlog", None, zero_holes=False)
    return home / "commitlog"


@pytest.fixture
def broker(rebuilt: Path, fixture_550: Fixture, tmp_path: Path) -> Broker:
    """A new one that has nothing but these files, and the topics of the old one."""
    broker = Broker("5.5.0", tmp_path / "broker")
    shutil.copytree(rebuilt, broker.commitlog)
    (broker.store / "config").mkdir()
    shutil.copy(fixture_550.path / "config/topics.json", broker.store / "config")
    return broker


def records_of(fixture: Fixture, queue: dict[str, Any]) -> bytes:
    """What a consumer of a queue got from the old broker: the stored records, one after the other."""
    return b"".join(fixture.log[offset : offset + size] for offset, size, _ in queue["entries"])


def pull_all(connection: Connection, queue: dict[str, Any]) -> bytes:
    """As many messages of a queue as the old broker had, from its first one on."""
    at, found = queue["first_index"], b""
    while at < queue["first_index"] + len(queue["entries"]):
        at, records = connection.pull(queue["topic"], queue["queue_id"], at)
        found += records
    return found


def test_a_real_broker_serves_every_message_and_goes_on(broker: Broker, fixture_550: Fixture) -> None:
    with broker, Connection(broker.port) as connection:
        wait_until(lambda: connection.undispatched_bytes() == 0, "consume queues of the whole log")
        assert connection.log_bounds().start == 0
        for queue in fixture_550.consume_queues:
            # it may go on: what was delayed or half committed is the new broker's to deliver
            assert pull_all(connection, queue).startswith(records_of(fixture_550, queue)), queue["topic"]
        for row in fixture_550.rows:
            if not row.get("blank"):
                offset = row["physical_offset"]
                assert connection.view(offset) == fixture_550.log[offset : offset + row["size"]]
        offset = connection.send(b"after the restore")
        assert offset >= fixture_550.max_offset
        assert b"after the restore" in connection.view(offset)
        assert broker.log_bytes(fixture_550.max_offset) == fixture_550.log


# a broker that lost a page of its newest file when it was killed: what of its files is its log, by path


BODY_BYTES = 300


def send(broker: Broker, count: int, body_bytes: int = BODY_BYTES) -> None:
    with Producer(broker.address, window=1) as producer:
        list(producer.send_all(OutgoingMessage("t", b"x" * body_bytes, queues=1) for _ in range(count)))


def starts(data: bytes) -> list[int]:
    """Where the records begin (specification, section 1.2)."""
    found = [0]
    while found[-1] < len(data):
        found.append(found[-1] + struct.unpack_from(">i", data, found[-1])[0])
    return found[:-1]


def lose(broker: Broker, start: int, end: int) -> None:
    with broker.commitlog.joinpath(f"{0:020d}").open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))


def read_from(broker: Broker, start: int) -> tuple[bytes, int]:
    """All that can be read by path from `start` on, and where it ends."""
    log = RocketMQLog(log_id=LogId("rocketmq", "b1"), path=str(broker.commitlog))
    chunks = read(log, start, log.bounds().end, committed=start)
    return b"".join(chunk.raw for chunk in chunks), chunks[-1].covered.end


@pytest.mark.parametrize(
    "body_bytes",
    [pytest.param(40, marks=pytest.mark.nightly), BODY_BYTES],
    ids=["a shorter one since", "one as long since"],
)
def test_what_a_broker_cut_off_when_it_recovered_is_never_read(tmp_path: Path, body_bytes: int) -> None:
    """Of 20 messages the 11th is lost; the nine behind it still stand on the disk, sound and in their places."""
    with Broker("5.5.0", tmp_path / "broker") as broker:
        send(broker, 20)
        whole = broker.log_bytes(end_of(broker))
        records = starts(whole)
        broker.kill()
        lose(broker, records[-10], records[-9])
        broker.start()
        assert end_of(broker) == records[-10]
        send(broker, 1, body_bytes)
        end = end_of(broker)
        assert end < len(whole)
        on_disk = broker.log_bytes(len(whole))
        assert on_disk[records[-8] :] == whole[records[-8] :]
        assert read_from(broker, 0) == (on_disk[:end], end)

        send(broker, 3, body_bytes)
        later = end_of(broker)
        assert read_from(broker, end) == (broker.log_bytes(later)[end:], later)
