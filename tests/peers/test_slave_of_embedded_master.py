"""A real RocketMQ 4.9.7 slave replicates from the embedded master; a real 5.5.0 broker takes the workload."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from sources.rocketmq.address import Address
from sources.rocketmq.broker.master import EmbeddedMaster, MasterSettings
from sources.rocketmq.client import RemotingClient
from sources.rocketmq.workload import send_workload, workload
from tests.peers.rocketmq import Broker
from tests.sources.rocketmq.broker.embedded import running_master

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

PATIENCE_S = 90.0
LOOK_EVERY_S = 0.2


def slave_of(master: EmbeddedMaster, home: Path, file_size_bytes: int) -> Broker:
    return Broker(
        "4.9.7",
        home,
        {
            "brokerRole": "SLAVE",
            "brokerId": 1,
            "haMasterAddress": str(master.ha_address),
            "mappedFileSizeCommitLog": file_size_bytes,
        },
    )


def slave_connections(master: EmbeddedMaster) -> list[dict[str, Any]]:
    with RemotingClient(master.address) as client:
        status = client.ha_status()
    assert status is not None
    slaves: list[dict[str, Any]] = status["haConnectionInfo"]
    return slaves


def max_offset(master: EmbeddedMaster) -> int:
    with RemotingClient(master.address) as client:
        return client.commit_log_bounds().end


def wait_for_acknowledgement(master: EmbeddedMaster, offset: int) -> None:
    """Until the master counts `offset` as acknowledged by its only slave."""
    enough = threading.Event()
    for _ in range(int(PATIENCE_S / LOOK_EVERY_S)):
        if [slave["slaveAckOffset"] for slave in slave_connections(master)] == [offset]:
            return
        enough.wait(LOOK_EVERY_S)
    pytest.fail(f"not acknowledged up to {offset}: {slave_connections(master)}")


def log_bytes(directory: Path, end: int) -> bytes:
    files = sorted(path for path in directory.iterdir() if path.name.isdigit())
    assert int(files[0].name) == 0
    return b"".join(path.read_bytes() for path in files)[:end]


@pytest.mark.parametrize(
    ("file_size_bytes", "before", "during"),
    [
        pytest.param(64 * 1024 * 1024, 2000, 8000, id="one file"),
        pytest.param(1024 * 1024, 300, 8000, id="over several files"),
    ],
)
def test_a_real_slave_ends_with_the_same_files(tmp_path: Path, file_size_bytes: int, before: int, during: int) -> None:
    """It asks for the last file, because it is empty: it is started while that is the first one."""
    settings = MasterSettings(store=tmp_path / "master", port=0, ha_port=0, file_size_bytes=file_size_bytes)
    items = workload(497)
    with running_master(settings) as master:
        assert send_workload(master.address, items, count=before).messages == before
        with slave_of(master, tmp_path / "slave", file_size_bytes) as slave:
            wait_for_acknowledgement(master, max_offset(master))
            assert send_workload(master.address, items, count=during).messages == during
            end = max_offset(master)
            wait_for_acknowledgement(master, end)
        assert (end > 3 * file_size_bytes) == (file_size_bytes == 1024 * 1024)
        assert log_bytes(slave.commitlog, end) == log_bytes(tmp_path / "master" / "commitlog", end)


def test_a_real_slave_comes_back_and_goes_on_where_it_was(tmp_path: Path) -> None:
    settings = MasterSettings(store=tmp_path / "master", port=0, ha_port=0, file_size_bytes=1024 * 1024)
    items = workload(498)
    with running_master(settings) as master:
        send_workload(master.address, items, count=200)
        with slave_of(master, tmp_path / "slave", settings.file_size_bytes) as slave:
            wait_for_acknowledgement(master, max_offset(master))
            slave.kill()
            send_workload(master.address, items, count=3000)
            slave.start()
            end = max_offset(master)
            wait_for_acknowledgement(master, end)
        assert log_bytes(slave.commitlog, end) == log_bytes(tmp_path / "master" / "commitlog", end)


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_real_broker_takes_the_workload(tmp_path: Path, version: str) -> None:
    with Broker(version, tmp_path) as broker:
        summary = send_workload(Address("127.0.0.1", broker.port), workload(550), count=5000)
        assert summary.refused == {}
        assert summary.messages == 5000
