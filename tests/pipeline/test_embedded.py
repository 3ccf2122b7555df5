"""`logtwin master` runs what the configuration and the command line say: asked by its own answers."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.demo.embedded_master import READY
from sources.access.address import Address
from sources.rocketmq.wire.client import RemotingClient
from tests.pipeline.operator_at_work import run

SETTINGS = """
[embedded_master]
port = 0
ha_port = 0
role = "SYNC_MASTER"
slave_timeout_s = 0.25
fall_behind_max_bytes = 4711
transfer_batch_bytes = 8192
sync_flush = true
"""


@contextmanager
def master(folder: Path, *options: str) -> Iterator[Address]:
    """A master as a process of its own, configured by SETTINGS and `options`: where it takes requests."""
    (folder / "job.toml").write_text(SETTINGS)
    command = [sys.executable, "-m", "pipeline", "master", "--config", str(folder / "job.toml")]
    command += ["--store", str(folder / "store"), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            ready = re.search(READY, process.stdout.readline())
            assert ready is not None
            yield Address.parse(ready["remoting"])
        finally:
            process.terminate()
            process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.job
def test_the_configuration_reaches_the_master_and_the_command_line_goes_over_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It takes messages from ``logtwin send``, and stops cleanly."""
    with master(tmp_path, "--role", "ASYNC_MASTER", "--in-sync-replicas", "2") as address:
        said = run(capsys, "send", "--to", address, "--count", "200", "--rate-per-s", "0")
        assert (said.code, said.out.startswith("200 messages")) == (0, True)
        assert "SEND_OK" in said.out
        assert "SLAVE" not in said.out  # without waiting for one
        with RemotingClient(address) as client:
            told, end = client.broker_config(), client.commit_log_bounds().end
    expected = {
        "brokerRole": "ASYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "250", "haSlaveFallbehindMax": "4711",
        "haTransferBatchSize": "8192", "flushDiskType": "SYNC_FLUSH",
    }  # fmt: skip
    assert expected.items() <= told.items()
    assert end > 100_000
    assert any((tmp_path / "store" / "commitlog").iterdir())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--role", "SLAVE"), "'SLAVE' is not one of"),
        (("--in-sync-replicas", "0"), "'--in-sync-replicas'"),
        (("--name-server", "nowhere"), "not an address"),
        (("--name-server", "127.0.0.1:9876", "--host", "0.0.0.0"), "an address of its own"),  # noqa: S104
    ],
)
def test_what_cannot_be_is_a_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], why: str
) -> None:
    said = run(capsys, "master", "--store", tmp_path, "--port", "0", "--ha-port", "0", *options)
    assert (said.code, why in " ".join(said.err.split())) == (2, True), said.err
