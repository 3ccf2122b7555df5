"""Disaster recovery: the replica becomes a master again, a real one and an embedded one."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.operate.rebuild import CommitLogRebuild
from sources.options import ReadOptions
from tests.patience import wait_until
from tests.peers.rocketmq import Broker
from tests.peers.wire import Connection
from tests.pipeline.running import job_config, replicate_now
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
