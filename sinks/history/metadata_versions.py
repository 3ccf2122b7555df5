"""Compute how a fetch of metadata changes the stored versions. Pure.

Let `at` be the time of a fetch. Afterwards this must hold, whatever was fetched before:

    the versions with  valid_from <= at < valid_to (or none)  are exactly the items of the fetch
    (and, for a kind with a `lasting` item that the fetch lacks, that item as it was)
    no two versions of one key overlap

It holds if `at` is later than every stored time, which the caller ensures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sources.metadata import MetadataKind

Row = Mapping[str, Any]
"""An item's columns; a version also has `valid_from` and `valid_to`."""


@dataclass(frozen=True, slots=True)
class VersionChange:
    """A change of the stored versions.

    `current` are all versions that are current now, ordered by key; `opened` counts those that have just begun.
    `closed` are the versions that have just ended.
    """

    current: Sequence[Row]
    opened: int
    closed: Sequence[Row]


def compare(kind: MetadataKind, current: Sequence[Row], items: Sequence[Row], at: datetime) -> VersionChange | None:
    """The change from the `current` versions to `items`, all items at the time `at`; None if nothing changes."""
    known = {_key(kind, row): row for row in current}
    found = {_key(kind, item): item for item in [*_left_out(kind, current, items), *items]}
    kept = {key: row for key, row in known.items() if key in found and _is_same(kind, row, found[key])}
    if kept.keys() == known.keys() == found.keys():
        return None
    opened = {key: {**found[key], "valid_from": at, "valid_to": None} for key in found.keys() - kept.keys()}
    now = kept | opened
    return VersionChange(
        current=[now[key] for key in sorted(now)],
        opened=len(opened),
        closed=[{**known[key], "valid_to": at} for key in sorted(known.keys() - kept.keys())],
    )


def _left_out(kind: MetadataKind, current: Sequence[Row], items: Sequence[Row]) -> list[Row]:
    """The `lasting` items among the `current` ones, if `items` has none."""
    if kind.lasting is None:
        return []
    column, value = kind.lasting
    if any(item[column] == value for item in items):
        return []
    return [row for row in current if row[column] == value]


def _key(kind: MetadataKind, row: Row) -> tuple[Any, ...]:
    return tuple(row[field.name] for field in kind.key)


def _is_same(kind: MetadataKind, row: Row, item: Row) -> bool:
    return all(row[field.name] == item[field.name] for field in kind.compared)
