"""What a reader makes of one body, as a table would have it."""

from __future__ import annotations

from typing import Any

from sinks.typed.columns import Column
from sinks.typed.formats.json_fields import Fields, Reader, column_values, each_left, taken_apart, texts_of


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


def outcome(read: Reader, body: bytes | None) -> str | None:
    """Why a body makes no row; None where it makes one."""
    _, _, misfits = taken_apart([body], read)
    return misfits[0].reason if misfits else None
