"""When the demo's producer may begin: a running master, and a slave in the place of the replica; what S3 needs."""

import importlib.util
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from pipeline.config.configuration import parse
from pipeline.demo import rocketmq, s3_server
from sources.errors import ConfigurationError
from sources.registry import open_log
from sources.rocketmq.embedded.master import EmbeddedMaster
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from sources.rocketmq.wire.remoting import ResponseCode
from tests.patience import wait_until
from tests.sources.rocketmq.embedded.test_double_write import following_slave, sync_master


@contextmanager
def beginning(store: Path) -> Iterator[tuple[EmbeddedMaster, Callable[[], bool], io.StringIO]]:
    """Of a demo with a new master: whether the producer may begin, and what the screen says."""
    said = io.StringIO()
    with sync_master(store) as master:
        addresses = {"master": str(master.ha_address), "remoting": str(master.address)}
        config = parse({"warehouse": "unused", "logs": [{"id": rocketmq.LOG_ID, **addresses}]}, where="test")
        log = open_log(config.logs[0])
        yield master, rocketmq.first_is_acknowledged(log, str(master.address), Console(file=said, width=200)), said


def test_it_begins_when_the_master_counts_a_replica_and_no_send_fails(tmp_path: Path) -> None:
    with beginning(tmp_path) as (master, may_begin, said):
        assert not may_begin()
        with following_slave(master), Producer(master.address) as producer:
            wait_until(may_begin, "the slave has the first message")
            assert producer.send(OutgoingMessage("orders", b"{}")).code == ResponseCode.SUCCESS
        assert said.getvalue() == ""


def test_without_a_replica_it_begins_all_the_same_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocketmq, "FIRST_WITHIN_S", 0.0)
    with beginning(tmp_path) as (_, may_begin, said):
        assert may_begin()
    assert "acknowledged nothing within 0 s; the producer begins, and is told SLAVE_NOT_AVAILABLE" in said.getvalue()


def test_without_moto_the_s3_server_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'moto\[server\]"), s3_server.running_server():
        pass
    with pytest.raises(SystemExit) as ended:
        s3_server.main([])
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
