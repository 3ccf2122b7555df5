"""Find the messages that delete the row of their key, and what is left of them. Pure.

A deleted key keeps a row that has only `_deleted` and its key. Otherwise an older message that comes later, out of a
filled hole or from another log, would bring the row back. Queries have to leave these rows out; the table's name in SQL
does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

import msgspec

from sinks.typed.formats.json_fields import Fields, not_too_deep


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletes:
    """Which messages delete a row: those with one of the values in `said` for a field, and those with a null body if
    `tombstones`.

    `key` are the fields of the key.
    """

    key: tuple[str, ...] = ()
    said: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tombstones: bool = False

    @property
    def are_any(self) -> bool:
        return bool(self.said) or self.tombstones

    def of(self, objects: Sequence[Fields]) -> list[bool]:
        """Whether each of `objects` deletes its row. Removes all fields but the key from those that do."""
        found = [
            any(name in one and _plain(one[name]) in values for name, values in self.said.items()) for one in objects
        ]
        for one in compress(objects, found):
            for name in [name for name in one if name not in self.key]:
                del one[name]
        return found

    def tombstone(self, record_key: bytes, kinds: Mapping[str, str]) -> Fields | None:
        """The key fields of a message without a body, from its record's key; None if they are not in it.

        A key that is a JSON object has them by name; any other key is the value of the table's only key field. `kinds`
        are those of the fields that have a column. Raises NoObject for a key that is nested too deep.
        """
        found = self._of_key(record_key, kinds)
        if found is None or not all(name in found for name in self.key):
            return None
        return {name: found[name] for name in self.key}

    def _of_key(self, record_key: bytes, kinds: Mapping[str, str]) -> Fields | None:
        try:
            text = record_key.decode()
        except UnicodeDecodeError:
            return None
        try:
            raw = bytes(msgspec.json.decode(not_too_deep(record_key), type=msgspec.Raw))
        except msgspec.DecodeError:
            raw = msgspec.json.encode(text)
        if raw[:1] == b"{":
            return msgspec.json.decode(raw, type=Fields)
        if len(self.key) != 1:
            return None
        if kinds.get(self.key[0]) == "string" and raw[:1] != b'"':
            raw = msgspec.json.encode(text)  # 42 and true can be strings, too
        return {self.key[0]: msgspec.Raw(raw)}


def _plain(raw: msgspec.Raw) -> str:
    """A string without its quotes, any other value as its text."""
    text = bytes(raw)
    return msgspec.json.decode(text, type=str) if text[:1] == b'"' else text.decode()
