"""The orders of the Kafka demo: repeatable, and of every kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from unittest.mock import Mock

import pytest
from kafka.errors import MessageSizeTooLargeError

from pipeline.demo.kafka_workload import OrderRecord, Sender, Transaction, orders
from sources.errors import MasterError

STATUSES = ["placed", "paid", "packed", "shipped"]


def records(seed: int, count: int) -> list[OrderRecord]:
    found: list[OrderRecord] = []
    for item in orders(seed):
        found += item.records if isinstance(item, Transaction) else [item]
        if len(found) >= count:
            return found
    raise AssertionError("the sequence ended")


def test_every_order_goes_its_way_and_then_no_further() -> None:
    seen: dict[bytes, list[str | None]] = {}
    for record in records(7, 20_000):
        value = None if record.value is None else json.loads(record.value)
        assert value is None or record.key == f"order-{value['order']:07d}".encode()
        seen.setdefault(record.key, []).append(None if value is None else value["status"])
    ways = {tuple(way) for way in seen.values()}
    whole = {tuple(STATUSES[:length]) for length in range(1, 5)}
    assert ways == whole | {(*way, None) for way in whole if len(way) < 4}


def test_some_come_in_transactions_of_which_some_are_aborted() -> None:
    transactions = [item for item in islice(orders(7), 20_000) if isinstance(item, Transaction)]
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
