"""Real brokers of 5.5.0 that elect their master: logtwin as an asynchronous learner."""

import os
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, parse
from pipeline.config.found import found_now
from pipeline.inspect.selection import ConfiguredLog
from pipeline.inspect.status import statuses
from pipeline.job.replicate import Job
from pipeline.operate.rebuild import CommitLogRebuild
from pipeline.verify.run import Scope, verify_log
from sources.errors import ConfigurationError, MasterUnreachable
from sources.options import ReadOptions
from tests.patience import eventually, wait_until
from tests.peers.cluster import connections_of
from tests.peers.elected import ElectedGroup, elected_group, epochs_of
from tests.peers.replicating import (
    assert_holds,
    assert_same_as_files,
    end_of,
    replicating,
    running_job,
    wait_for_all,
    wait_for_position,
)
from tests.peers.rocketmq import Broker
from tests.peers.rocketmq_process import NameServer
from tests.peers.sender import Sender, Sent
from tests.pipeline.running import job_config

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(420)]

# what all replicas in sync have is confirmed, and no producer waits for them: a master that is cut off takes messages
ALL_CONFIRM: dict[str, str | int] = {"allAckInSyncStateSet": "true", "inSyncReplicas": 1}


def sent_to(master: Broker, topic: str, count: int = 300) -> list[Sent]:
    sender = Sender(master.port, topic)
    wait_until(lambda: sender.send(1)[0].is_ok, "a master that takes messages")
    sent = sender.send(count)
    assert all(one.is_ok for one in sent)
    return sent


def rows_of(lake: Path, table: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = DeltaTable(str(lake / table)).to_pyarrow_table().to_pylist()
    return rows


def knows(lake: Path, topic: str) -> bool:
    """Whether a fetch has brought the topic: a slave that becomes the master may not have it yet."""
    folder = str(lake / "topics")
    return DeltaTable.is_deltatable(folder) and topic in {row["topic"] for row in rows_of(lake, "topics")}


def test_two_switches_are_followed_and_nobody_counts_the_replica(spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    sent: dict[str, list[Sent]] = {}
    with elected_group(tmp_path, 3) as group:
        masters = [group.brokers[0]]
        names, often = group.names.address, {"first_after_s": 0.0, "every_s": 1.0}
        with replicating(spark, lake, masters[0], often, name_server=names) as job:
            for turn in range(3):
                sent[f"turn-{turn}"] = sent_to(masters[-1], f"turn-{turn}")
                wait_for_all(job, masters[-1])
                wait_until(partial(knows, lake, f"turn-{turn}"), "the topic in the replica")
                members = {one["brokerId"] for one in group.in_sync()}
                assert members <= {1, 2, 3}
                if not turn:
                    wait_until(lambda: len(connections_of(masters[0])) == 3, "the session beside the slaves")
                    assert len(members) == 3
                if turn == 1:
                    masters[0].start()
                    group.await_in_sync(3)
                if turn < 2:
                    masters[-1].kill()
                    masters.append(group.await_another_master(masters[-1]))
        epochs = epochs_of(masters[-1])
        assert_same_as_files(lake, job, masters[-1])
        config = job_config(lake, id="rocketmq/b1", controllers=group.controllers)
        verified = verify_log(spark, config.warehouse, ConfiguredLog.alone(config.logs[0]), Scope())
        assert (verified.problem, verified.bytes) == (None, end_of(masters[-1]))
    for topic, messages in sent.items():
        assert_holds(lake, messages, topic)
    rows = sorted(rows_of(lake, "epochs"), key=lambda row: str(row["number"]))
    assert [(row["number"], row["start"]) for row in rows] == epochs
    assert [row["master"] for row in rows] == [f"127.0.0.1:{one.ha_port}" for one in masters]
    assert {row["epoch"] for row in rows} == {0}
    assert {f"turn-{turn}" for turn in range(3)} <= {row["topic"] for row in rows_of(lake, "topics")}


def cut_off(group: ElectedGroup, job: Job, beyond: Job) -> tuple[Broker, Broker, list[Sent]]:
    """The master takes messages that its slave does not get, and is killed; the slave is the master then."""
    first, second = group.brokers
    shared = sent_to(first, "shared")
    wait_until(lambda: end_of(second) == end_of(first), "the slave")
    confirmed = end_of(first)
    wait_for_position(job, confirmed)
    os.kill(second.pid, signal.SIGSTOP)  # its end would take it out of the sync state set
    alone = Sender(first.port, "alone").send(40, wait=False)
    assert all(one.is_ok for one in alone)
    wait_for_position(beyond, end_of(first))
    assert job.progress()[0].position == confirmed
    first.kill()
    second.kill()  # with what waited at its socket
    second.start()
    assert group.await_another_master(first) is second
    return first, second, shared


def test_what_nobody_confirmed_is_taken_where_it_was_asked_for_and_then_taken_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of two replicas one asks for it; by default nothing is taken that would have to go back."""
    lake, cautious = tmp_path / "lake", tmp_path / "cautious"
    with elected_group(tmp_path, 2, settings=ALL_CONFIRM) as group:
        (broker, _), names = group.brokers, group.names.address
        with (
            replicating(spark, lake, broker, name_server=names, beyond_confirm=True) as beyond,
            replicating(spark, cautious, broker, controllers=group.controllers) as job,
        ):
            first, second, shared = cut_off(group, job, beyond)
            later = sent_to(second, "later")
            wait_for_all(job, second)
            wait_for_all(beyond, second)
            first.start()
            wait_until(lambda: end_of(first) == end_of(second), "the first master as a slave")
            wait_for_all(beyond, second)
        epochs = epochs_of(second)
        for warehouse, one in ((lake, beyond), (cautious, job)):
            assert_same_as_files(warehouse, one, second)
            assert_holds(warehouse, shared, "shared")
            assert_holds(warehouse, later, "later")
        assert first.log_bytes(end_of(second)) == second.log_bytes(end_of(second))
    assert not (cautious / "removed").exists()
    assert not (cautious / "incidents").exists()
    removed = rows_of(lake, "removed")
    assert {row["topic"] for row in removed} == {"alone"}
    assert len(removed) == 40
    (incident,) = rows_of(lake, "incidents")
    (old, _), (new, start) = epochs
    assert (incident["condition"], incident["start"], incident["action"]) == ("failed_over", start, "repaired")
    assert f"epoch {old} from 0 on" in str(incident["cause"])
    assert f"epoch {new} from {start} on" in str(incident["cause"])
    rows = rows_of(lake, "epochs")
    assert {(row["epoch"], row["number"], row["start"]) for row in rows} == {(0, old, 0), (1, old, 0), (1, new, start)}


def test_a_rebuilt_log_is_a_master_of_its_group_again(spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with elected_group(tmp_path, 1) as group:
        (broker,) = group.brokers
        names = group.names.address
        with replicating(spark, lake, broker, name_server=names) as job:
            sent = sent_to(broker, "before")
            wait_for_all(job, broker)
        broker.kill()
        for part in broker.store.iterdir():
            if part.is_dir():
                shutil.rmtree(part)  # also its topics: they come back with the first message
            elif part.name != "brokerIdentity":  # by which the controller knows it
                part.unlink(missing_ok=True)
        source = CommitLogRebuild(spark, str(lake), ReadOptions(id="rocketmq/b1", name_server=names))
        (rebuilt,) = source.write(broker.commitlog, 1024 * 1024, zero_holes=False)
        assert str(broker.store / "epochFileCheckpoint") in rebuilt.text(broker.commitlog)
        with pytest.raises(ConfigurationError, match="there are others"):
            source.write(broker.store / "again", 1024 * 1024, zero_holes=False)
        broker.start()
        wait_until(lambda: group.master() is broker, "the broker as master again")
        assert [start for _, start in epochs_of(broker)] == [0, rebuilt.log.end]
        with replicating(spark, lake, broker, name_server=names) as job:
            later = sent_to(broker, "after")
            wait_for_all(job, broker)
        assert_same_as_files(lake, job, broker)
    assert_holds(lake, sent, "before")
    assert_holds(lake, later, "after")


# the brokers of a cluster, as a name server lists them


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
