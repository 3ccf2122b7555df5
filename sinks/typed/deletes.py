"""Messages that delete the row of their key: which they are, and what is left of them. Pure.

A deleted key keeps a row, with `_deleted` and nothing but its key: an older message that comes later, out of a hole
that is filled or from another log, would bring the row back otherwise. Whoever queries leaves these rows out; the
table's name in SQL does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

import msgspec

from sinks.typed.formats.json_fields import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletes:
    """`said` has fields, each with the values by which it says so; with `tombstones` a null body says so, too.

    `key` are the fields of the key.
    """

    key: tuple[str, ...] = ()
    said: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tombstones: bool = False

    @property
    def are_any(self) -> bool:
        return bool(self.said) or self.tombstones

    def of(self, objects: Sequence[Fields]) -> list[bool]:
        """Whether each deletes its row; of those that do nothing but the key is left."""
        found = [
            any(name in one and _plain(one[name]) in values for name, values in self.said.items()) for one in objects
        ]
        for one in compress(objects, found):
            for name in [name for name in one if name not in self.key]:
                del one[name]
        return found

    def tombstone(self, record_key: bytes, kinds: Mapping[str, str]) -> Fields | None:
        """The fields of a message without a body, out of its record's key; None where they are not in there.

        A key that is a JSON object has them by name; any other is the value of the one field that the table has for a
        key. `kinds` are of the fields that have a column.
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
            value = msgspec.json.decode(record_key)
        except msgspec.DecodeError:
            value = text
        if isinstance(value, dict):
            return msgspec.json.decode(record_key, type=Fields)
        if len(self.key) != 1:
            return None
        if kinds.get(self.key[0]) == "string" and not isinstance(value, str):
            value = text  # 42 and true are texts, too
        return {self.key[0]: msgspec.Raw(msgspec.json.encode(value))}


def _plain(raw: msgspec.Raw) -> str:
    """A string without its quotes, anything else as its text."""
    text = bytes(raw)
    return msgspec.json.decode(text, type=str) if text[:1] == b'"' else text.decode()
