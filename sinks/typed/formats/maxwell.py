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

from sinks.typed.formats.changes import Change, Wanted, as_kind, file_number, part, placed
from sinks.typed.formats.json_fields import Fields, NoObject, fields_of, string_of

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


class Maxwell:
    """A reader of messages that gives the wanted rows."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._declared = {name: kind for name, kind in wanted.kinds.items() if kind in ("timestamp", "boolean")}

    def __call__(self, body: bytes | None) -> list[Change]:
        """The rows of a message; none if it has none, or is of another table. Raises NoObject."""
        fields = fields_of(body)
        type_ = part(fields, "type", str, _NOT_MAXWELL)
        if type_ in _WITHOUT_ROWS:
            return []
        database, table = part(fields, "database", str, _NOT_MAXWELL), part(fields, "table", str, _NOT_MAXWELL)
        if type_ not in _ROWS or database is None or table is None:
            raise NoObject(_NOT_MAXWELL, f"type {type_}, of {database}.{table}")
        if not self._wanted.has(database, table):
            return []
        row, old = part(fields, "data", Fields, _NOT_MAXWELL), part(fields, "old", Fields, _NOT_MAXWELL)
        if row is None:
            raise NoObject(_NOT_MAXWELL, "no data")
        order = None
        if type_ != _BOOTSTRAP:
            order = self._wanted.ordered(_order(fields), "no position, which output_binlog_position gives")
        found = []
        if type_ == "update" and old is not None and self._wanted.is_moved(old, row):
            found.append(self._change({**row, **old}, order, deletes=True))
        return [*found, self._change(row, order, deletes=type_ == "delete")]

    def _change(self, row: Fields, order: str | None, *, deletes: bool) -> Change:
        for name, kind in self._declared.items():
            if name in row:
                raw = row[name]
                row[name] = as_kind(kind, string_of(bytes(raw)) or bytes(raw).decode()) if _says(kind, raw) else raw
        return Change(row, {}, deletes=deletes, order=order)


def _says(kind: str, raw: msgspec.Raw) -> bool:
    return bytes(raw)[:1] == b'"' if kind == "timestamp" else bytes(raw) in (b"0", b"1")


def _order(fields: Fields) -> str | None:
    file, _, offset = (part(fields, "position", str, _NOT_MAXWELL) or "").rpartition(":")
    number = file_number(file)
    if number is None or not offset.isdigit():
        return None
    is_last = part(fields, "commit", bool, _NOT_MAXWELL)
    row = _LAST if is_last else part(fields, "xoffset", int, _NOT_MAXWELL) or 0
    at_ms = (part(fields, "ts", int, _NOT_MAXWELL) or 0) * 1000
    server = part(fields, "server_id", int, _NOT_MAXWELL) or 0
    return placed([(number, 10), (int(offset), 19), (row, 10)], at_ms, server)
