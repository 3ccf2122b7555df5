"""The demo's Kafka broker goes on with its store, ends with whoever started it, and says why it cannot start; its
orders are repeatable, and of every kind.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from unittest.mock import Mock

import pytest
from kafka.errors import MessageSizeTooLargeError

from pipeline.demo.kafka_broker import VERSION, lone_settings, prepared, running_broker
from pipeline.demo.kafka_workload import OrderRecord, Sender, Transaction, orders
from sources.errors import MasterError
from tests.patience import PATIENCE_S, wait_until
from tests.pipeline.demos import processes_of

_KEPT = "import sys\nfrom pathlib import Path\nfrom pipeline.demo.kafka_broker import running_broker\n"
_KEPT += "with running_broker(Path(sys.argv[1])) as server:\n    print(server, flush=True)\n    sys.stdin.read()\n"

STATUSES = ["placed", "paid", "packed", "shipped"]


@pytest.mark.peer
@pytest.mark.nightly
def test_it_ends_with_who_started_it_also_by_force_and_its_store_is_used_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _KEPT, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        try:
            assert starter.stdout is not None
            assert starter.stdout.readline().startswith("127.0.0.1:")
            assert len(processes_of(tmp_path / "server.properties")) == 1
            with pytest.raises(MasterError, match="did not start") as raised, running_broker(tmp_path):
                pass
            assert "broker.log" in str(raised.value)
        finally:
            os.kill(starter.pid, signal.SIGKILL)
        starter.wait(PATIENCE_S)
    wait_until(lambda: processes_of(tmp_path / "server.properties") == [], "the broker's end")


@pytest.mark.peer
@pytest.mark.nightly
def test_a_store_that_cannot_be_formatted_is_said(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(MasterError, match="could not format"):
        prepared(VERSION, tmp_path / "home", lone_settings(tmp_path / "data", 1))


def records(seed: int, count: int) -> list[OrderRecord]:
    found: list[OrderRecord] = []
    for item in orders(seed):
        found += item.records if isinstance(item, Transaction) else [item]
        if len(found) >= count:
            return found
    raise AssertionError("the sequence ended")


def test_every_order_goes_its_way_and_then_no_further() -> None:
    seen: dict[bytes, list[str | None]] = {}
    for record in records(7, 5_000):
        value = None if record.value is None else json.loads(record.value)
        assert value is None or record.key == f"order-{value['order']:07d}".encode()
        seen.setdefault(record.key, []).append(None if value is None else value["status"])
    ways = {tuple(way) for way in seen.values()}
    whole = {tuple(STATUSES[:length]) for length in range(1, 5)}
    assert ways == whole | {(*way, None) for way in whole if len(way) < 4}


def test_some_come_in_transactions_of_which_some_are_aborted() -> None:
    transactions = [item for item in islice(orders(7), 8_000) if isinstance(item, Transaction)]
    assert {item.is_committed for item in transactions} == {True, False}
    assert all(len(item.records) > 1 for item in transactions)


class Refused:
    """What a producer gives for a record, which its broker has refused already."""

    def add_errback(self, tell: Callable[[Exception], object]) -> None:
        tell(MessageSizeTooLargeError())


def test_the_first_record_that_is_refused_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Mock(send=Mock(return_value=Refused()))
    monkeypatch.setattr(Sender, "_producer", lambda self, **options: producer)
    with pytest.raises(MasterError, match="broker:9092 does not take the orders") as raised:
        Sender("broker:9092", "orders").send(1, duration_s=60)
    assert "MessageSizeTooLarge" in str(raised.value)
    assert producer.send.call_count == 1
    assert producer.close.call_count == 2
