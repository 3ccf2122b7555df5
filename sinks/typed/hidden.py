"""What a table hides: fields that are masked or dropped, and parts of fields by their path. Pure.

A path is the names on the way to a part, with dots between them: ``customer.card``. A list on the way stands for each
of its elements, and of a map a name is one of its own. Names may have dots: every way that gives the same path is
hidden, and a field with this very name, too. Parts are hidden in the text of a field, so it makes no difference whether
that becomes a column with parts, JSON text, or `_rest`.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import msgspec

from sinks.typed.columns import Column
from sinks.typed.formats.json_fields import REDACTED, Fields, Misfit, concealed, json_of
from sinks.typed.kinds import JSON, TEXTS, Array, Map, Struct, kind_of_parts, parts_of

_DROP: Final = "drop"
_FIELDS: Final = msgspec.json.Decoder(Fields)
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_WHOLE: Final = ("not_struct", "not_array", "not_map")
"""The reasons of misfits that show more than one part."""


@dataclass(frozen=True)
class Hidden:
    """Hides what `masks` and `dropped` name."""

    masks: Mapping[str, str]
    dropped: Sequence[str]

    def conceal(self, objects: Sequence[Fields], shown: Container[str]) -> None:
        """Hide what has no column, and parts of all fields. A field in `shown` is masked as a column."""
        for name, how in self._all.items():
            if how == _DROP or name not in shown:
                for one in objects:
                    _hide(one, name, how)
        for head, below in self._below.items():
            for one in objects:
                if head in one:
                    one[head] = _without(one[head], below)

    def kind(self, field: str, kind: str) -> str:
        """What a column of this kind becomes if parts of it are hidden: a masked part is a string, a dropped one no
        more there."""
        for path, how in self._below.get(field, {}).items():
            kind = hidden_kind(kind, path, how) or kind
        return kind

    def unknown(self, kinds: Mapping[str, str]) -> Iterator[str]:
        """The paths that lead to no part of these fields; those of JSON text may have any."""
        for path in (one for one in self._all if one not in kinds):
            ways = [hidden_kind(kinds[head], rest, self._all[path]) for head, rest in cuts(path) if head in kinds]
            if not any(ways):
                yield path

    def of_misfits(self, column: Column, misfits: Sequence[Misfit]) -> list[Misfit]:
        """`misfits` of a column, which do not show what is hidden in it."""
        if column.field not in self._below:
            return list(misfits)
        return [replace(one, found=REDACTED) if one.reason in _WHOLE else one for one in misfits]

    @cached_property
    def _all(self) -> dict[str, str]:
        return {**self.masks, **dict.fromkeys(self.dropped, _DROP)}

    @cached_property
    def _below(self) -> dict[str, dict[str, str]]:
        return _by_head(self._all)


def cuts(path: str) -> Iterator[tuple[str, str]]:
    """The ways to cut a path in two."""
    at = path.find(".")
    while at >= 0:
        yield path[:at], path[at + 1 :]
        at = path.find(".", at + 1)


def _by_head(paths: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """What is hidden below each name."""
    found: dict[str, dict[str, str]] = {}
    for path, how in paths.items():
        for head, rest in cuts(path):
            found.setdefault(head, {})[rest] = how
    return found


def _hide(fields: Fields, name: str, how: str) -> None:
    if how == _DROP:
        fields.pop(name, None)
    elif name in fields:
        fields[name] = concealed(how, fields[name])


def _without(raw: msgspec.Raw, paths: Mapping[str, str]) -> msgspec.Raw:
    text = bytes(raw)
    if text[:1] == b"[":
        return msgspec.Raw(b"[" + b",".join(_without(one, paths) for one in _LIST.decode(text)) + b"]")
    if text[:1] != b"{":
        return raw
    fields = _FIELDS.decode(text)
    for name, how in paths.items():
        _hide(fields, name, how)
    for head, below in _by_head(paths).items():
        if head in fields:
            fields[head] = _without(fields[head], below)
    return json_of(fields)


def hidden_kind(kind: str, path: str, how: str) -> str | None:
    """What a kind becomes if a part of it is hidden; None if it has no such part, or one that cannot be a string."""
    match parts_of(kind):
        case Array(item):
            inner = hidden_kind(item, path, how)
            return None if inner is None else kind_of_parts(Array(inner))
        case Map(value):
            # all values of a map are of one kind, so hiding one must not change it
            ways = [hidden_kind(value, rest, how) for _, rest in cuts(path)]
            return kind if how in (_DROP, "null") or value in TEXTS or value in ways else None
        case Struct(fields):
            return _of_struct(fields, path, how)
    return kind if kind == JSON else None


def _of_struct(fields: Sequence[tuple[str, str]], path: str, how: str) -> str | None:
    below = {name: hidden_kind(kind, rest, how) for name, kind in fields for head, rest in cuts(path) if head == name}
    if path not in dict(fields) and not any(below.values()):
        return None
    kept = [(name, "string" if name == path else below.get(name) or kind) for name, kind in fields]
    left = tuple(one for one in kept if one[0] != path or how != _DROP)
    return kind_of_parts(Struct(left)) if left else JSON
