"""When the demo's producer begins: a running master, a slave in the place of the replica; what it sends; S3."""

import importlib.util
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest
from rich.console import Console

from pipeline.config.configuration import parse
from pipeline.demo import rocketmq, s3_server
from pipeline.demo.shop_database import DATABASE, TABLE, ShopDatabase
from sinks.typed.formats.canal import Canal
from sinks.typed.formats.changes import WantedRows
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


def test_its_events_make_its_rows() -> None:
    shop, read, kept = ShopDatabase(7), Canal(WantedRows(DATABASE, TABLE, ("id",))), dict[bytes, dict[str, bytes]]()
    for event in islice(shop.events(), 2_000):
        for row in read(event):
            if row.empties:
                kept.clear()
            elif row.deletes:
                del kept[bytes(row["id"])]
            else:
                kept[bytes(row["id"])] = {name: bytes(raw) for name, raw in row.items()}
    assert len(kept) == len(shop.rows) > 100
    for values in shop.rows.values():
        made = kept[str(values["id"]).encode()]
        assert made["credit"].decode() == values["credit"]
        assert (made["city"] == b"null") == (values["city"] is None)


def test_the_same_seed_makes_the_same_rows() -> None:
    one, other = ShopDatabase(7), ShopDatabase(7)
    for shop in (one, other):
        for _ in islice(shop.events(), 500):
            pass
    assert one.rows == other.rows
