"""CSV bodies: one record each (RFC 4180), without a header. Pure.

Nothing between two separators is null, and `""` is an empty string; Python's csv cannot tell them apart before 3.13.
Numbers, true and false have to be written as in JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from sinks.typed.formats.json_fields import Fields, NoObject, Reader, decoded
from sinks.typed.formats.scalars import is_number

_LITERALS: Final = (b"true", b"false")
_STRINGS: Final = ("string", "timestamp", "date")
_NULL: Final = msgspec.Raw(b"null")


def csv_reader(kinds: Mapping[str, str], separator: str = ",") -> Reader:
    mark = re.escape(separator)
    value = re.compile(rf'(?:"((?:[^"]++|"")*+)"|([^"{mark}\r\n]*+))({mark}|(?:\r?\n)?\Z)')

    def values(text: str) -> Iterator[str | None]:
        end = 0
        while True:
            found = value.match(text, end)
            if found is None:
                raise NoObject("not_csv", f"no value, or more than one record, at character {end}")
            quoted, plain, behind = found.groups()
            yield plain or None if quoted is None else quoted.replace('""', '"')
            if behind != separator:
                return
            end = found.end()

    def read(body: bytes | None) -> Fields:
        found = list(values(decoded(body)))
        if len(found) != len(kinds):
            raise NoObject("wrong_fields", f"{len(found)} fields, and not {len(kinds)}")
        return {name: _raw(kind, one) for (name, kind), one in zip(kinds.items(), found, strict=True)}

    return read


def _raw(kind: str, text: str | None) -> msgspec.Raw:
    if text is None:
        return _NULL
    plain = text.encode()
    if kind not in _STRINGS and (plain in _LITERALS or is_number(plain)):
        return msgspec.Raw(plain)
    return msgspec.Raw(msgspec.json.encode(text))
