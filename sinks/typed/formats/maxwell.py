"""Maxwell's messages (JSON). Pure.

One message has one row: `data`, as it is now, or was when it was deleted, and `old`, what an update has changed in it.
Nothing says which types the columns have: values are as JSON has them, and a declared column says more. Times have no
zone, those of TIMESTAMP are UTC: so is what a column of type timestamp gets, also of DATETIME, which has none. A
boolean column takes 0 and 1. BLOB and BINARY are base64, a SET is a list, a JSON its value.

With ``output_binlog_position`` a message has its `position`, with ``output_xoffset`` its place among those of its
transaction, in which the last one, with `commit`, has none. Rows of a bootstrap have neither: they are as old as any.
`TRUNCATE` makes no message at all.
"""

from __future__ import annotations

from typing import Final

import msgspec

from sinks.typed.formats.changes import Change, WantedRows, as_kind, file_number, placed
from sinks.typed.formats.json_fields import Fields, NoObject, decoded_by, given, not_too_deep
from sinks.typed.kinds import is_nested

_NOT_MAXWELL: Final = "not_maxwell"
_BOOTSTRAP: Final = "bootstrap-insert"
_ROWS: Final = frozenset(("insert", "update", "delete", _BOOTSTRAP))
_WITHOUT_ROWS: Final = frozenset(
    (
        "bootstrap-start", "bootstrap-complete", "database-create", "database-alter", "database-drop", "table-create",
        "table-alter", "table-drop", "heartbeat",
    )
)  # fmt: skip
_LAST: Final = 10**9


class _Message(msgspec.Struct):
    type: str
    database: str | None = None
    table: str | None = None
    data: Fields | None = None
    old: Fields | None = None
    position: str | None = None
    xoffset: int | None = None
    commit: bool | None = None
    ts: int = 0
    server_id: int | None = None


_MESSAGE: Final = msgspec.json.Decoder(_Message)


class Maxwell:
    """A reader of messages that gives the wanted rows."""

    def __init__(self, wanted: WantedRows) -> None:
        self._wanted = wanted
        of_texts = ((name, kind) for name, kind in wanted.kinds if kind in ("timestamp", "boolean") or is_nested(kind))
        converts = ((name, as_kind(kind)) for name, kind in of_texts)
        self._converted = [(name, convert) for name, convert in converts if convert is not None]

    def __call__(self, body: bytes | None) -> list[Change]:
        """The rows of a message; none if it has none, or is of another table. Raises NoObject."""
        message = decoded_by(_MESSAGE, body, _NOT_MAXWELL)
        if message.type in _WITHOUT_ROWS:
            return []
        if message.type not in _ROWS or message.database is None or message.table is None:
            raise NoObject(_NOT_MAXWELL, f"type {message.type}, of {message.database}.{message.table}")
        if not self._wanted.has(message.database, message.table):
            return []
        not_too_deep(given(body))
        row, old = message.data, message.old
        if row is None:
            raise NoObject(_NOT_MAXWELL, "no data")
        order = None
        if message.type != _BOOTSTRAP and self._wanted.needs_order:
            order = self._wanted.ordered(_order(message), "no position, which output_binlog_position gives")
        found = []
        if message.type == "update" and old is not None and self._wanted.is_moved(old, row):
            found.append(self._change({**row, **old}, order, message.ts, deletes=True))
        return [*found, self._change(row, order, message.ts, deletes=message.type == "delete")]

    def _change(self, row: Fields, order: str | None, at_s: int, *, deletes: bool) -> Change:
        for name, convert in self._converted:
            if name in row:
                row[name] = convert(row[name])
        return Change(row, {}, deletes=deletes, order=order, at_us=at_s * 1_000_000)


def _order(message: _Message) -> str | None:
    file, _, offset = (message.position or "").rpartition(":")
    number = file_number(file)
    if number is None or not offset.isdigit():
        return None
    row = _LAST if message.commit else message.xoffset or 0
    return placed([(number, 10), (int(offset), 19), (row, 10)], message.ts * 1000, message.server_id or None)
