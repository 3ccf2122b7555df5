"""Confluent's frame around a body: 00, the id of its schema in a registry (4 bytes, big-endian), the body. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from sinks.typed.formats.json_fields import Fields, NoObject, Reader, given
from sources.errors import ConfigurationError

_HEAD: Final = struct.Struct(">bI")


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema as a registry has it; `others` are the names and texts of those that it uses, each after its own."""

    type: str
    text: str
    others: tuple[tuple[str, str], ...] = ()


def framed(
    kind: str, registered: Callable[[int], Registered], of: Callable[[Registered], Callable[[bytes], Fields]]
) -> Reader:
    """A reader of frames whose schemas are of type `kind`; `of` makes the reader of a body, once for each schema."""

    @cache
    def reading(number: int) -> Callable[[bytes], Fields] | NoObject:
        found = registered(number)
        if found.type != kind:
            return NoObject("unusable_schema", f"schema {number} is {found.type}, and not {kind}")
        try:
            return of(found)
        except ConfigurationError as error:
            return NoObject("unusable_schema", f"schema {number}: {error}")

    def read(body: bytes | None) -> Fields:
        body = given(body)
        if len(body) < _HEAD.size or body[0] != 0:
            raise NoObject("no_schema_id", f"{body[: _HEAD.size].hex()}: no 00 and four bytes at the beginning")
        found = reading(_HEAD.unpack_from(body)[1])
        if isinstance(found, NoObject):
            raise NoObject(found.reason, str(found))
        return found(body[_HEAD.size :])

    return read
