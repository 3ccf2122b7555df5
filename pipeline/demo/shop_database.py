"""The database of a small shop, and its change events as Canal sends them (`sinks/typed/formats/canal.py`)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from itertools import count
from typing import Any, Final

import msgspec

from sources.access.address import Address
from sources.errors import LogtwinError, MasterError
from sources.rocketmq.producer.producer import MessageBatch, OutgoingMessage, Producer
from sources.rocketmq.producer.workload import ANSWER_TIMEOUT_MS

DATABASE: Final = "shop"
TABLE: Final = "customers"
TOPIC: Final = "canal-shop"
TYPES: Final = {
    "id": "bigint",
    "name": "varchar(60)",
    "city": "varchar(40)",
    "credit": "decimal(10,2)",
    "joined": "date",
}
"""The columns, with their types in MySQL."""

Row = Mapping[str, str | None]
"""A row, with values as Canal has them: as text."""

_SQL_TYPES: Final = {"id": -5, "name": 12, "city": 12, "credit": 3, "joined": 91}  # of java.sql.Types
_NAMES: Final = ("Žofie Dvořáková", "Jörg Müller", "李娜", "Олена Коваль", "Aïcha N'Diaye", "María Peña", "田中太郎")
_CITIES: Final = ("Praha", "Köln", "上海", "Київ", "Dakar", "Bogotá", None)
_KINDS: Final = ("INSERT", "INSERT", "INSERT", "UPDATE", "UPDATE", "UPDATE", "UPDATE", "DELETE", "KEY")
_MOST_AT_ONCE: Final = 3
_EVENTS_AT_ONCE: Final = 10
_PAUSE_S: Final = 0.5


class ShopDatabase:
    """The table of customers, by their ids, and what changes in it: the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - a workload is no secret
        self._ids = count(1)
        self._numbers = count(1)
        self.rows: dict[str, Row] = {}

    def events(self) -> Iterator[bytes]:
        """Change the table for ever, and yield what Canal says of each change. The first one empties it."""
        yield self._event("TRUNCATE", [], sql=f"TRUNCATE TABLE {TABLE}")
        while True:
            kind = self._chance.choice(_KINDS) if self.rows else "INSERT"
            if kind == "INSERT":
                come = [self._new() for _ in range(self._chance.randint(1, _MOST_AT_ONCE))]
                self.rows |= {str(one["id"]): one for one in come}
                yield self._event(kind, come)
            elif kind == "DELETE":
                yield self._event(kind, [self.rows.pop(self._chance.choice([*self.rows]))])
            else:
                yield self._updated(is_moved=kind == "KEY")

    def _updated(self, *, is_moved: bool) -> bytes:
        """A customer has another id, or other values."""
        row = self.rows.pop(self._chance.choice([*self.rows]))
        values = {"id": str(next(self._ids))} if is_moved else {"city": self._city(), "credit": self._credit()}
        changed = {name: value for name, value in values.items() if value != row[name]}
        now = {**row, **changed}
        self.rows[str(now["id"])] = now
        return self._event("UPDATE", [now], [{name: row[name] for name in changed}])

    def _new(self) -> Row:
        joined = date(2026, 1, 1) + timedelta(days=self._chance.randrange(300))
        name = f"{self._chance.choice(_NAMES)} {self._chance.randrange(1000)}"
        values = (str(next(self._ids)), name, self._city(), self._credit(), joined.isoformat())
        return dict(zip(TYPES, values, strict=True))

    def _city(self) -> str | None:
        return self._chance.choice(_CITIES)

    def _credit(self) -> str:
        return f"{self._chance.randrange(-1_000_000, 1_000_000) / 100:.2f}"

    def _event(self, kind: str, data: list[Row], old: list[Row] | None = None, *, sql: str = "") -> bytes:
        at_ms, is_ddl = int(time.time() * 1000), bool(sql)
        told: dict[str, Any] = {
            "data": None if is_ddl else data,
            "database": DATABASE,
            "es": at_ms // 1000 * 1000,
            "gtid": "",
            "id": next(self._numbers),
            "isDdl": is_ddl,
            "mysqlType": None if is_ddl else TYPES,
            "old": old,
            "pkNames": None if is_ddl else ["id"],
            "sql": sql,
            "sqlType": None if is_ddl else _SQL_TYPES,
            "table": TABLE,
            "ts": at_ms,
            "type": kind,
        }
        return msgspec.json.encode(told)


class ChangeFeed:
    """Sends the change events of a `ShopDatabase` to a broker, in a thread of its own, until it is told to stop."""

    def __init__(self, to: Address, seed: int) -> None:
        self.database = ShopDatabase(seed)
        self.sent = 0
        self._to = to
        self._stop = threading.Event()
        self._failure: LogtwinError | None = None
        self._thread = threading.Thread(target=self._run, name="changes of the shop", daemon=True)

    def begin(self) -> None:
        """Start it, if it has not begun."""
        if self._thread.ident is None:
            self._thread.start()

    def has_ended(self) -> bool:
        """Tell it to stop. Returns whether it has, and all is stored. Raises what kept it from that."""
        self._stop.set()
        if self._failure is not None:
            raise self._failure
        return not self._thread.is_alive()

    def _run(self) -> None:
        events = self.database.events()
        try:
            with Producer(self._to, answer_timeout_ms=ANSWER_TIMEOUT_MS) as producer:
                while not self._stop.wait(_PAUSE_S):
                    at_once = [OutgoingMessage(TOPIC, next(events), queue_id=0) for _ in range(_EVENTS_AT_ONCE)]
                    producer.submit(MessageBatch(tuple(at_once)))
                    for result in producer.flush():
                        if not result.is_stored:
                            raise MasterError("the broker has not stored changes of the shop", found=result)
                    self.sent += len(at_once)
        except LogtwinError as error:
            self._failure = error
