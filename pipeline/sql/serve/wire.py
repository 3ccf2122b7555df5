"""What ``logtwin sql --serve`` and its clients say to each other, and how that is written. Pure.

A message is its length as four bytes, big endian, one byte that says what it is, and as many bytes as the length says:

=========== ====== ========================================================
`HELLO`     server who it is; once, before anything else
`ASK`       client statements; once
`OUTPUT`    server the next bytes of the answer
`NOTE`      server a line for a person
`ERROR`     server `LogtwinError.facts`, instead of `DONE`
`DONE`      server that was all
=========== ====== ========================================================
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, Final, NamedTuple, Self

from sources.errors import ConfigurationError, LogtwinError, error_from

HELLO: Final = b"H"
ASK: Final = b"A"
OUTPUT: Final = b"O"
NOTE: Final = b"N"
ERROR: Final = b"E"
DONE: Final = b"D"

REPORT: Final = "report"
"""Instead of a format: no statements, but the page of ``logtwin report``."""

LONGEST_BYTES: Final = 1 << 28
_HEAD: Final = struct.Struct(">Ic")


class Message(NamedTuple):
    """`kind` is one of the letters above."""

    kind: bytes
    body: bytes = b""

    def encoded(self) -> bytes:
        """Raises ConfigurationError where it is longer than who reads it takes."""
        if len(self.body) > LONGEST_BYTES:
            raise ConfigurationError("these are too many statements", expected=f"{LONGEST_BYTES:,} bytes at most")
        return _HEAD.pack(len(self.body), self.kind) + self.body


@dataclass(frozen=True, slots=True)
class Hello:
    """`folder` is where relative paths begin, for the server."""

    version: str
    pid: int
    folder: str

    def message(self) -> Message:
        return Message(HELLO, json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, message: Message | None) -> Self:
        """Also of another version, which may say more. Raises ValueError where it is something else."""
        found = _json(message, HELLO)
        return cls(str(found.get("version")), int(str(found.get("pid", 0))), str(found.get("folder")))


@dataclass(frozen=True, slots=True)
class Ask:
    """Statements, and what they are answered as; `config` is the text of the configuration file `where`; `width` a
    terminal's, else None.
    """

    text: str
    form: str
    width: int | None
    config: str
    where: str

    def message(self) -> Message:
        return Message(ASK, json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, message: Message | None) -> Self:
        """Raises ValueError where it is something else."""
        try:
            return cls(**_json(message, ASK))
        except TypeError as error:
            raise ValueError(str(error)) from error


def error_message(error: LogtwinError) -> Message:
    """The way back is `error_in`."""
    return Message(ERROR, json.dumps(error.facts()).encode())


def error_in(message: Message) -> LogtwinError:
    return error_from(json.loads(message.body))


def next_message(stream: BinaryIO) -> Message | None:
    """None where the other side has gone, between two messages or in one. Raises ValueError for what is none."""
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    length, kind = _HEAD.unpack(head)
    if length > LONGEST_BYTES:
        raise ValueError(f"a message of {length:,} bytes")
    body = stream.read(length)
    return Message(kind, body) if len(body) == length else None


def _json(message: Message | None, kind: bytes) -> dict[str, Any]:
    if message is None or message.kind != kind:
        raise ValueError(f"expected {kind!r}, found {message and message.kind!r}")
    found = json.loads(message.body)
    if not isinstance(found, dict):
        raise ValueError(f"expected an object, found {type(found).__name__}")
    return found
