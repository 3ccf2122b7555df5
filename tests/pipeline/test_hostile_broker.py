"""A job, as its operator runs it, of two logs, one of whose brokers answers with what takes long to parse.

By module, how long parsing takes is in tests/test_growth.py.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sources.rocketmq.producer.workload import send_workload, workload
from sources.rocketmq.wire.client import RemotingClient
from sources.rocketmq.wire.remoting import Command, encode_command
from tests.patience import wait_until
from tests.pipeline.masters import Served, embedded_master
from tests.sources.rocketmq.scripted_master import ScriptedBroker

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(400)]

PROJECT = Path(__file__).parents[2]
WITHOUT_AN_END = b'"' + b'\\"' * 2_500_000


def hostile(request: Command) -> bytes:
    return encode_command(request.response(0, body=WITHOUT_AN_END))


@contextmanager
def replicating(job: Path) -> Iterator[subprocess.Popen[str]]:
    """A job, which has ended behind this, in one way or the other."""
    command = [sys.executable, "-m", "pipeline", "replicate", "--config", str(job)]
    said = job.with_suffix(".err")
    with said.open("w") as stderr:
        process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=stderr, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def await_acknowledged(master: Served) -> None:
    end = master.end
    with RemotingClient(master.master.address) as client:
        wait_until(lambda: client.highest_slave_offset() == end, f"an acknowledgement of {end}")


def test_a_brokers_answer_holds_up_neither_another_log_nor_the_end_of_the_job(tmp_path: Path) -> None:
    with ScriptedBroker(hostile) as broker, embedded_master(tmp_path / "store") as master:
        job = tmp_path / "job.toml"
        job.write_text(
            f'warehouse = "{tmp_path}/lake"\n'
            f'[[logs]]\nid = "rocketmq/hostile"\nmaster = "{broker.address}"\nremoting = "{broker.address}"\n'
            f'[[logs]]\nid = "rocketmq/healthy"\nmaster = "{master.options["master"]}"\n'
            f'remoting = "{master.options["remoting"]}"\n'
        )
        with replicating(job) as process:
            send_workload(master.master.address, workload(1), count=100)
            await_acknowledged(master)
            wait_until(lambda: bool(broker.requests), "a question to the hostile broker")
            send_workload(master.master.address, workload(2), count=100)
            await_acknowledged(master)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 3
        assert "rocketmq/hostile: not a frame of RocketMQ's remoting protocol" in " ".join(
            job.with_suffix(".err").read_text().split()
        )
