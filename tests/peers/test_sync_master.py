"""SYNC_MASTER brokers whose producers wait for logtwin alone: the acknowledgement of a batch that is in Delta."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from tests.patience import meanwhile, wait_until
from tests.peers.cluster import configured, connections_of, knows
from tests.peers.conftest import Report
from tests.peers.replicating import (
    assert_holds,
    assert_same_as_files,
    end_of,
    replicating,
    wait_for_all,
    wait_for_answer,
    wait_for_position,
)
from tests.peers.rocketmq import Broker
from tests.peers.rocketmq_process import NameServer
from tests.peers.sender import Sender, Sent

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.timeout(300)]

OK = 0
SLAVE_TIMEOUT_MS = 20_000
"""Many times the default: on a busy machine a batch takes longer than that, and who waits is what is tested."""
IN_VAIN_MS = 500
IN_VAIN = {"4.9.7": 11, "5.3.3": 12, "5.5.0": 12}
"""The answer to a producer whose message no slave took: SLAVE_NOT_AVAILABLE at once, FLUSH_SLAVE_TIMEOUT in the end."""
EACH_VERSION = ("5.5.0", *(pytest.param(version, marks=pytest.mark.nightly) for version in ("4.9.7", "5.3.3")))


@pytest.fixture(scope="module", params=EACH_VERSION)
def master(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings: dict[str, str | int] = {"brokerRole": "SYNC_MASTER", "slaveTimeout": SLAVE_TIMEOUT_MS}
    if request.param != "4.9.7":  # which waits for any slave, as soon as there is one
        settings["inSyncReplicas"] = 2
    with Broker(request.param, tmp_path_factory.mktemp("waiting"), settings) as broker:
        yield broker


def send_until(is_over: threading.Event, sender: Sender) -> list[Sent]:
    sent: list[Sent] = []
    while not is_over.is_set():
        sent += sender.send(100)
    return sent


def test_producers_wait_for_the_lakehouse_alone(
    spark: SparkSession, master: Broker, tmp_path: Path, report: Report
) -> None:
    """MS-01, MS-04, MS-05, MS-06, MS-07, MS-09, HA-60, HA-69.

    With logtwin each is answered OK, also after a kill of the broker in the middle; without it the broker says so, and
    stores the message all the same.
    """
    sender = Sender(master.port, "waits")
    sent: list[Sent] = []

    def send() -> Sent:
        sent.extend(sender.send(1))
        return sent[-1]

    with replicating(spark, tmp_path, master) as job, ThreadPoolExecutor(1) as pool, ExitStack() as at_last:
        wait_until(lambda: send().is_ok, "an answer")
        answered = sender.send(300, rate_per_s=400)
        before, is_killed = sender.answers, threading.Event()
        at_last.callback(is_killed.set)  # also where the test fails before
        sending = pool.submit(send_until, is_killed, sender)
        wait_until(lambda: sender.answers >= before + 50, "some answers")
        os.kill(master.pid, signal.SIGSTOP)
        wait_until(lambda: sender.asked > sender.answers, "producers who wait")
        master.kill()
        is_killed.set()
        master.start()
        around = sending.result(120)
        wait_until(lambda: send().is_ok, "an answer, without anybody's help")
        wait_for_all(job, master)
    if master.version != "4.9.7":
        assert connections_of(master) == []
    with configured(master, slaveTimeout=IN_VAIN_MS):
        alone = sender.send(20)
    with replicating(spark, tmp_path, master) as job:
        wait_until(lambda: send().is_ok, "an answer again")
        wait_for_all(job, master)

    assert Counter(one.code for one in answered) == {OK: 300}
    codes = Counter(one.code for one in around)
    assert codes[OK] >= 50
    assert set(codes) <= {OK, None, 11, 12}
    assert Counter(one.code for one in alone) == {IN_VAIN[master.version]: 20}
    assert_holds(tmp_path, sent + answered + around + alone, sender.topic)
    assert_same_as_files(tmp_path, job, master)
    p50_ms, p99_ms = np.percentile([one.latency_s * 1000 for one in answered], [50, 99])
    report(f"waiting send, {master.version}, logtwin with a trigger of 1 s: p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms")


# beside, and behind, a real slave: what the master counts is what is true


FLUSH_SLAVE_TIMEOUT = 12
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


@pytest.mark.nightly
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
        assert in_vain == {FLUSH_SLAVE_TIMEOUT: MESSAGES}  # logtwin's word is not the master's to hear
        slave.start()
        wait_for_answer(lambda: sender.send(1)[0], OK)
        end = end_of(master)
        wait_for_position(job, end)
    slave.kill()
    assert_holds(tmp_path / "lake", sent, sender.topic)
    assert_same_as_files(tmp_path / "lake", job, master)
