"""Collect the fields of messages that have no column yet: no more than can get one, however many producers send. Pure.

What a task has found goes to the driver, and a field's name is a producer's: so there are as many as the table has room
for, and each name is one that a column can have. The fields of the first messages count, as `with_found` in
`sinks/typed/columns.py` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sinks.typed.columns import PLACE, REST, Column, MessagePlace, SeenValues, column_name

MOST: Final = 1_000
"""How many, unless a table says less."""


class FoundFields:
    """The fields that were seen first, `most` at most.

    `name_of` gives what a field is called, which is the same for fields of which only one can have a column; None for a
    field that can have none.
    """

    def __init__(self, name_of: Callable[[str], str | None], most: int = MOST) -> None:
        self._name_of = name_of
        self._most = most
        self._seen: dict[str, SeenValues] = {}
        self._names: dict[str, str] = {}  # of the fields in `_seen`
        self._last: MessagePlace | None = None  # there are `most` fields up to here: a later one is not among the first

    def see(self, field: str, kind: str, place: MessagePlace) -> None:
        before = self._seen.get(field)
        if before is None:
            self._add(SeenValues(field, {kind: place}))
        elif kind not in before.first or place < before.first[kind]:
            self._seen[field] = before.and_also(SeenValues(field, {kind: place}))

    def take(self, other: FoundFields) -> None:
        for one in other.first().values():
            before = self._seen.get(one.field)
            if before is None:
                self._add(one)
            else:
                self._seen[one.field] = before.and_also(one)

    def first(self) -> dict[str, SeenValues]:
        """The fields that were seen first, by name, in the order of their messages."""
        kept: dict[str, SeenValues] = {}
        names: set[str] = set()
        for one in sorted(self._seen.values(), key=lambda one: one.place):  # a stable sort: as they stand in a message
            if self._names[one.field] not in names and len(kept) < self._most:
                names.add(self._names[one.field])
                kept[one.field] = one
        return kept

    def _add(self, one: SeenValues) -> None:
        if self._last is not None and one.place > self._last:
            return
        name = self._name_of(one.field)
        if name is None:
            return
        self._seen[one.field], self._names[one.field] = one, name
        if len(self._seen) > 2 * self._most:
            self._seen = self.first()
            self._names = {field: self._names[field] for field in self._seen}
            if len(self._seen) == self._most:
                self._last = max(one.place for one in self._seen.values())


def free_names(columns: Sequence[Column], renamed: Mapping[str, str]) -> Callable[[str], str | None]:
    """What fields are called beside `columns`, ignoring case; None for those that can have no column."""
    taken = {one.name.casefold() for one in (*columns, *PLACE, REST)}

    def name_of(field: str) -> str | None:
        name = column_name(field, renamed)
        return None if name is None or name.casefold() in taken else name.casefold()

    return name_of
