"""A shop whose producers send messages: the same ones for the same seed.

Orders, payments, user events and telemetry, as JSON that an analyst can query; tags, keys, user properties; text beyond
ASCII; mostly about 1 KB, from empty to 200 KB; some bodies compressed by the producer, some messages in batches. The
sequence depends only on the seed: times inside the bodies come from its own clock, and the unique keys are made of the
seed and the message's number, so each message can be recognised in any log.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from sources.rocketmq.format.bodies import COMPRESSED, Compression, compress
from sources.rocketmq.format.properties import KEYS, TAGS, UNIQ_KEY
from sources.rocketmq.producer.producer import MessageBatch, OutgoingMessage

T = TypeVar("T")
Fields = dict[str, Any]

QUEUES: Final = 4
"""Queues of every topic of the workload."""
LARGEST_BODY_BYTES: Final = 200_000
LEAST_COMPRESSED_BYTES: Final = 4096
"""The size from which a client compresses bodies."""

_BATCH_SIZES: Final = (2, 4, 8, 16, 32)
_KINDS: Final = (*((kind, kind.sys_flag) for kind in Compression), (Compression.ZLIB, COMPRESSED))  # the last: 4.x
_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(milliseconds=137)
_CUSTOMERS: Final = (
    "Žofie Dvořáková", "Jörg Müller", "李娜", "Олена Коваль", "Aïcha N'Diaye", "محمد علي", "María Peña", "John Smith",
    "Søren Ångström", "Νίκος Παππάς", "田中太郎", "Zoë O'Hara 🚲",
)  # fmt: skip
_CITIES: Final = ("Praha", "Köln", "上海", "Київ", "Dakar", "القاهرة", "Bogotá", "Leeds", "Malmö", "Πάτρα", "大阪")
_PRODUCTS: Final = ("teapot", "Fahrradkette", "毛笔", "книга", "café crème", "lamp", "Schraubenzieher", "boots")
_STATUSES: Final = ("created", "paid", "packed", "shipped", "delivered", "returned", "cancelled")
_OUTCOMES: Final = ("accepted", "accepted", "accepted", "declined", "refunded")
_CURRENCIES: Final = ("EUR", "CZK", "CNY", "USD", "SEK")
_METHODS: Final = ("card", "transfer", "wallet", "cash")
_CHANNELS: Final = ("web", "app", "shop")
_CHANNEL_SINCE: Final = 20_000
"""From this message on, orders say where they came from: producers add such fields one day without notice."""
_EVENTS: Final = ("login", "search", "view", "basket", "checkout", "logout")
_AGENTS: Final = ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "shop-app/7.2 (Android 16)")
_REGIONS: Final = ("eu-central", "eu-north", "ap-east", "us-west")
_BATCHES: Final = 0.03
"""The share of the items, and so of each kind below; the rest are plain messages of about 1 KB."""
_EMPTY: Final = 0.02  # of the messages in batches: newer brokers refuse an empty single message
_COMPRESSED: Final = 0.03  # of the single messages, as the next ones
_TINY: Final = 0.04
_LARGE: Final = 0.002  # 4 KB to 200 KB, not compressed
_PHRASES: Final = (
    "leave it at the gate with the neighbour, who signs for it", "ring twice, the bell is faint", "bez dobírky, prosím",
    "gift wrapping wanted, no invoice in the parcel", "Lieferung nur vormittags", "请勿折叠", "ne pas plier, merci",
    "хрупкое, не бросать", "call before delivery", "second attempt", "the customer asked for another colour",
)  # fmt: skip


class Shop:
    """The state of one sequence: random numbers, a clock, and how many messages there were."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311  (a workload is no secret)
        self._random = chance.random
        self._seed = seed
        self._number = 0
        self._order_id = ""
        self._notes = "; ".join(chance.choice(_PHRASES) for _ in range(20_000))
        self._topics: tuple[tuple[str, Callable[[], Fields]], ...] = (  # and the makers of their bodies
            ("orders", self._order),
            ("payments", self._payment),
            ("user-events", self._user_event),
            ("telemetry", self._telemetry),
        )

    def next_item(self) -> OutgoingMessage | MessageBatch:
        topic, fields = self._pick(self._topics)
        queue_id = self._below(QUEUES)
        if self._random() >= _BATCHES:
            return self._single(topic, queue_id, fields())
        count = self._pick(_BATCH_SIZES)
        return MessageBatch(tuple(self._in_batch(topic, queue_id, fields()) for _ in range(count)))

    def _single(self, topic: str, queue_id: int, fields: Fields) -> OutgoingMessage:
        chance = self._random()
        body, sys_flag = _json(fields), 0
        if chance < _COMPRESSED:
            kind, sys_flag = self._pick(_KINDS)
            note = self._note(LEAST_COMPRESSED_BYTES + self._below(4 * LEAST_COMPRESSED_BYTES))
            body = compress(_json(fields | {"note": note}), kind)
        elif chance < _COMPRESSED + _TINY:
            body = str(self._below(1000)).encode()
        elif chance < _COMPRESSED + _TINY + _LARGE:
            body = self._large(fields)
        return self._message(topic, queue_id, fields, body, sys_flag)

    def _in_batch(self, topic: str, queue_id: int, fields: Fields) -> OutgoingMessage:
        body = b"" if self._random() < _EMPTY else _json(fields)
        return self._message(topic, queue_id, fields, body, 0)

    def _large(self, fields: Fields) -> bytes:
        """Return a body of 4 KB up to exactly the largest size."""
        wanted = min(LEAST_COMPRESSED_BYTES + self._below(LARGEST_BODY_BYTES), LARGEST_BODY_BYTES)
        body = _json(fields | {"note": ""})
        note = self._note(wanted).encode()[: wanted - len(body)].decode(errors="ignore")
        return _json(fields | {"note": note.ljust(len(note) + wanted - len(body) - len(note.encode()))})

    def _message(self, topic: str, queue_id: int, fields: Fields, body: bytes, sys_flag: int) -> OutgoingMessage:
        self._number += 1
        properties = {UNIQ_KEY: f"7F000001{self._seed & 0xFFFF_FFFF_FFFF:012X}{self._number:012X}"}
        named = {KEYS: _keys(fields), TAGS: fields.get("status") or fields.get("event")}
        properties |= {name: value for name, value in named.items() if value}
        properties |= {"region": self._pick(_REGIONS), "source": f"{topic}-service", "city": self._pick(_CITIES)}
        return OutgoingMessage(topic, body, properties, queue_id, flag=0, sys_flag=sys_flag, queues=QUEUES)

    def _order(self) -> Fields:
        items: list[Fields] = [
            {"product": self._pick(_PRODUCTS), "quantity": 1 + self._below(5), "price": self._below(20_000) / 100}
            for _ in range(1 + self._below(4))
        ]
        # Every third order is an update of the one before.
        if not self._order_id or self._number % 3:
            self._order_id = f"O-{self._number:09d}"
        channel = {"channel": _CHANNELS[self._number % 3]} if self._number >= _CHANNEL_SINCE else {}
        return {
            "order_id": self._order_id,
            "customer_id": f"C-{self._below(5000):05d}",
            "customer": self._pick(_CUSTOMERS),
            "status": self._pick(_STATUSES),
            "amount": round(sum(item["quantity"] * item["price"] for item in items), 2),
            "currency": self._pick(_CURRENCIES),
            "ordered_at": self._now(),
            "items": items,
            "note": self._note(300 + self._below(600)),
            **channel,
        }

    def _payment(self) -> Fields:
        return {
            "payment_id": f"P-{self._number:09d}",
            "order_id": f"O-{self._below(self._number + 1):09d}",
            "status": self._pick(_OUTCOMES),
            "method": self._pick(_METHODS),
            "amount": self._below(200_000) / 100,
            "currency": self._pick(_CURRENCIES),
            "paid_at": self._now(),
            "note": self._note(500 + self._below(600)),
        }

    def _user_event(self) -> Fields:
        return {
            "user_id": f"C-{self._below(5000):05d}",
            "event": self._pick(_EVENTS),
            "page": f"/{self._pick(_PRODUCTS)}/{self._below(400)}",
            "agent": self._pick(_AGENTS),
            "at": self._now(),
            "duration_ms": self._below(30_000),
            "note": self._note(400 + self._below(700)),
        }

    def _telemetry(self) -> Fields:
        return {
            "device_id": f"D-{self._below(800):04d}",
            "at": self._now(),
            "battery": self._below(101),
            "temperature_c": self._below(600) / 10 - 20,
            "readings": [self._below(10_000) / 100 for _ in range(12)],
            "note": self._note(400 + self._below(600)),
        }

    def _now(self) -> str:
        return (_EPOCH + self._number * _TICK).isoformat()

    def _note(self, characters: int) -> str:
        start = self._below(len(self._notes) - characters)
        return self._notes[start : start + characters]

    def _below(self, limit: int) -> int:
        return int(self._random() * limit)

    def _pick(self, choices: Sequence[T]) -> T:
        return choices[int(self._random() * len(choices))]


def _json(fields: Fields) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def _keys(fields: Fields) -> str:
    """Return the ids of a body, separated by spaces as in KEYS; none if it has no id to look up."""
    return " ".join(fields[name] for name in ("order_id", "payment_id", "customer_id", "user_id") if name in fields)
