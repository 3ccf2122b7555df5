"""A workload for a Kafka topic: a shop's orders, the same ones for the same seed.

An order is placed, paid, packed and shipped, each time by a record with its key; some are cancelled, by a tombstone.
Now and then several records are sent in a transaction; some transactions are aborted, so that no consumer gets their
records. ``python -m pipeline.demo.kafka_workload SERVER TOPIC …`` sends them; SIGTERM ends it early.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import typer
from kafka import KafkaProducer
from kafka.errors import KafkaError

from pipeline.system.console import run, show
from pipeline.system.signals import stop_by_signal
from sources.errors import MasterError

_SHARE_OF_NEW: Final = 0.3
_SHARE_OF_CANCELLED: Final = 0.03
_TRANSACTION_EVERY: Final = 300
"""The average number of records between transactions, each of which costs a producer some hundredths of a second."""
_SHARE_OF_ABORTED: Final = 0.25
_STATUSES: Final = ("placed", "paid", "packed", "shipped")
_PRODUCTS: Final = ("teapot", "Fahrradkette", "毛笔", "книга", "café crème", 'lamp "Søren"', "<boots> & laces")
_CHANNELS: Final = (b"web", b"app", b"phone")
_REMARKS: Final = ("", "gift wrap, please", "leave it with the neighbour; ring twice 🔔", "Rechnung per Post " * 12)
_WORTH_SLEEPING_S: Final = 0.01
_SENT_WITHIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class OrderRecord:
    """A record about an order. A tombstone has no value."""

    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Transaction:
    """Records that a consumer gets together or not at all."""

    records: tuple[OrderRecord, ...]
    is_committed: bool


def orders(seed: int) -> Iterator[OrderRecord | Transaction]:
    shop = _Shop(seed)
    while True:
        yield shop.next_item()


class _Shop:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311  (a workload is no secret)
        self._placed = 0
        self._open: list[dict[str, Any]] = []

    def next_item(self) -> OrderRecord | Transaction:
        if self._chance.random() * _TRANSACTION_EVERY >= 1:
            return self._record()
        records = tuple(self._record() for _ in range(self._chance.randrange(2, 40)))
        return Transaction(records, is_committed=self._chance.random() >= _SHARE_OF_ABORTED)

    def _record(self) -> OrderRecord:
        if not self._open or self._chance.random() < _SHARE_OF_NEW:
            return self._place()
        at = self._chance.randrange(len(self._open))
        if self._chance.random() < _SHARE_OF_CANCELLED:
            return OrderRecord(_key(self._closed(at)), None, (("reason", b"cancelled"),))
        return self._advance(at)

    def _place(self) -> OrderRecord:
        bought = self._chance.sample(_PRODUCTS, self._chance.randrange(1, 5))
        self._open.append(
            {
                "order": self._placed,
                "customer": f"C-{self._chance.randrange(2000):04d}",
                "status": _STATUSES[0],
                "items": [{"product": name, "count": self._chance.randrange(1, 4)} for name in bought],
                "amount": round(self._chance.lognormvariate(3.5, 0.8), 2),
                "remark": self._chance.choice(_REMARKS),
            }
        )
        self._placed += 1
        return self._record_of(self._open[-1])

    def _advance(self, at: int) -> OrderRecord:
        order = self._open[at]
        order["status"] = _STATUSES[_STATUSES.index(order["status"]) + 1]
        if order["status"] == _STATUSES[-1]:
            self._closed(at)
        return self._record_of(order)

    def _closed(self, at: int) -> dict[str, Any]:
        """Remove and return the order at this place, which the last order takes."""
        self._open[at], self._open[-1] = self._open[-1], self._open[at]
        return self._open.pop()

    def _record_of(self, order: dict[str, Any]) -> OrderRecord:
        value = json.dumps(order, ensure_ascii=False).encode()
        trace = self._chance.randbytes(8)
        return OrderRecord(_key(order), value, (("channel", self._chance.choice(_CHANNELS)), ("trace", trace)))


def _key(order: dict[str, Any]) -> bytes:
    return b"order-%07d" % order["order"]


@dataclass
class Sent:
    """How much was sent, in how many seconds. `records` counts those that a read_committed consumer gets."""

    records: int = 0
    tombstones: int = 0
    committed: int = 0  # transactions
    aborted: int = 0
    withdrawn: int = 0  # records of aborted transactions
    seconds: float = 0.0

    def count(self, item: OrderRecord | Transaction) -> None:
        if isinstance(item, Transaction) and not item.is_committed:
            self.aborted += 1
            self.withdrawn += len(item.records)
            return
        records = item.records if isinstance(item, Transaction) else (item,)
        self.committed += isinstance(item, Transaction)
        self.records += len(records)
        self.tombstones += sum(one.value is None for one in records)

    def __str__(self) -> str:
        rate = self.records / self.seconds if self.seconds else 0.0
        return (
            f"{self.records:,} records in {self.seconds:,.1f} s, {rate:,.0f}/s; {self.tombstones:,} tombstones; "
            f"{self.committed:,} transactions committed, {self.aborted:,} aborted, with {self.withdrawn:,} records"
        )


@dataclass
class Sender:
    """Sends to `topic` at `server` through two producers, one of them for transactions."""

    server: str
    topic: str
    stop: threading.Event = field(default_factory=threading.Event)
    _refusals: list[KafkaError] = field(default_factory=list)

    def send(self, seed: int, *, rate_per_s: float = 0.0, duration_s: float, count: int | None = None) -> Sent:
        """Send the orders of `seed` until `duration_s` is over, `count` records are sent, or `stop` is set.

        With `rate_per_s` 0 it sends as fast as it can. Raises MasterError if the broker refuses a record.
        """
        sent, started_s = Sent(), time.monotonic()
        try:
            with closing(self._producer()) as plain, closing(self._producer(transactional_id=self.topic)) as careful:
                careful.init_transactions()
                for item in orders(seed):
                    sent.seconds = time.monotonic() - started_s
                    if self.stop.is_set() or sent.seconds >= duration_s or sent.records >= (count or sys.maxsize):
                        break
                    ahead_s = sent.records / rate_per_s - sent.seconds if rate_per_s else 0.0
                    if ahead_s > _WORTH_SLEEPING_S:
                        self.stop.wait(ahead_s)
                    self._send(item, plain, careful)
                    sent.count(item)
                self._flush(plain)
        except KafkaError as error:
            raise MasterError(f"the broker at {self.server} does not take the orders", found=repr(error)) from error
        return sent

    def _producer(self, **options: Any) -> KafkaProducer:
        # The metadata's age limit lets new partitions get records after a second.
        return KafkaProducer(
            bootstrap_servers=self.server, compression_type="lz4", linger_ms=20, metadata_max_age_ms=1000, **options
        )

    def _send(self, item: OrderRecord | Transaction, plain: KafkaProducer, careful: KafkaProducer) -> None:
        if isinstance(item, OrderRecord):
            self._hand_over(item, plain)
            return
        careful.begin_transaction()
        for record in item.records:
            self._hand_over(record, careful)
        if item.is_committed:
            careful.commit_transaction()
        else:
            self._flush(careful)  # otherwise the records would not even reach the log
            careful.abort_transaction()

    def _hand_over(self, record: OrderRecord, to: KafkaProducer) -> None:
        future = to.send(self.topic, record.value, record.key, headers=list(record.headers))
        future.add_errback(self._refusals.append)
        self._raise_refusal()

    def _flush(self, producer: KafkaProducer) -> None:
        producer.flush(_SENT_WITHIN_S)
        self._raise_refusal()

    def _raise_refusal(self) -> None:
        if self._refusals:
            raise self._refusals[0]


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def main(
    server: str,
    topic: str,
    seed: Annotated[int, typer.Option()],
    duration_s: Annotated[float, typer.Option()],
    rate_per_s: float = 0.0,
    count: int | None = None,
) -> None:
    """Send the workload, and print how much was sent."""
    sender = Sender(server, topic)
    with stop_by_signal(sender.stop.set):
        show(str(sender.send(seed, rate_per_s=rate_per_s, duration_s=duration_s, count=count)))


if __name__ == "__main__":
    run(app, None)
