"""What a reader makes of one body, as a table would have it."""

import json
from typing import Any

from sinks.typed.columns import Column
from sinks.typed.formats.changes import Change, WantedRows
from sinks.typed.formats.json_fields import AnyReader, Fields, column_values, each_left, taken_apart, texts_of


def row_of(fields: Fields, kinds: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of columns of these kinds, and of those that do not fit the reason."""
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for name, kind in kinds.items():
        column = Column(name, name, kind)
        found, misfits = column_values(column, texts_of([fields], column))
        values[name] = found[0].as_py()
        if misfits:
            wrong[name] = misfits[0].reason
    return values, wrong


def texts(fields: Fields) -> dict[str, bytes]:
    return {name: bytes(raw) for name, raw in fields.items()}


def found_kinds(fields: Fields) -> dict[str, str]:
    return {name: kind for _, name, kind in each_left([fields])}


def outcome(read: AnyReader, body: bytes | None) -> str | None:
    """Why a body makes no row; None where it makes one."""
    _, _, misfits = taken_apart([body], read)
    return misfits[0].reason if misfits else None


def encoded(event: dict[str, Any]) -> bytes:
    """As Java's libraries write it: without blanks."""
    return json.dumps(event, separators=(",", ":")).encode()


def change(read: AnyReader, event: dict[str, Any]) -> Change:
    """The only one of an event."""
    (one,) = read(encoded(event))
    assert isinstance(one, Change)
    return one


def changes(read: AnyReader, event: dict[str, Any]) -> list[tuple[bool, dict[str, Any]]]:
    """The rows of a change event: whether each is gone, and the values of its columns, by the kinds that it tells."""
    found = []
    for one in read(encoded(event)):
        assert isinstance(one, Change)
        values, wrong = row_of(one.copy(), {**{name: kind for _, name, kind in each_left([one])}, **one.kinds})
        assert not wrong, wrong
        found.append((one.deletes, {**dict.fromkeys(one), **values}))
    return found


def wanted(**how: Any) -> WantedRows:
    """Rows of the table ``orders``, in the database ``shop``, by ``id``."""
    kinds = tuple(how.pop("kinds", {}).items())
    return WantedRows(**{"database": "shop", "table": "orders", "key": ("id",), "kinds": kinds, **how})
