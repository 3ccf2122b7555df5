"""Integers as Avro and Confluent's frames encode them: zig-zag, 7 bits a byte, the lowest first. Pure."""

from __future__ import annotations

from typing import Final

_LAST: Final = 63
"""The bits of a 64-bit number before its last byte, which holds only one more."""


def long_at(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends. Raises IndexError at the end of `data`, ValueError beyond 64 bits."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    found, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        if shift == _LAST and byte > 1:
            raise ValueError("a number of more than 64 bits")
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at
        shift += 7
