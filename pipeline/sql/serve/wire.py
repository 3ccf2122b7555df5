"""The protocol between ``logtwin sql --serve`` and its clients. Pure.

A message is the length of its body in four bytes, big endian, one byte for its kind, and the body:

=========== ====== ========================================================
`HELLO`     server its version; once, before anything else
`ASK`       client statements; once
`OUTPUT`    server the next bytes of the answer
`NOTE`      server a line for a person
`ERROR`     server `LogtwinError.facts`, instead of `DONE`
`DONE`      server the end of the answer
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
"""Takes the place of a format, to ask for the page of ``logtwin report`` instead of running statements."""

LONGEST_BYTES: Final = 1 << 28
_HEAD: Final = struct.Struct(">Ic")


class ClientFrame(NamedTuple):
    """A message; `kind` is one of the letters above."""

    kind: bytes
    body: bytes = b""

    def encoded(self) -> bytes:
        """The message as bytes. Raises ConfigurationError if it is longer than LONGEST_BYTES."""
        if len(self.body) > LONGEST_BYTES:
            raise ConfigurationError("these are too many statements", expected=f"{LONGEST_BYTES:,} bytes at most")
        return _HEAD.pack(len(self.body), self.kind) + self.body


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a server; `folder` is where relative paths begin for it."""

    version: str
    pid: int
    folder: str

    def message(self) -> ClientFrame:
        return ClientFrame(HELLO, json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, message: ClientFrame | None) -> Self:
        """Parse a hello, also one of another version with more in it. Raises ValueError for any other message."""
        found = _json(message, HELLO)
        return cls(str(found.get("version")), int(str(found.get("pid", 0))), str(found.get("folder")))


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: statements and the format of the answer.

    `config` is the text of the configuration file `where`. `width` is that of a terminal, or None.
    """

    text: str
    form: str
    width: int | None
    config: str
    where: str

    def message(self) -> ClientFrame:
        return ClientFrame(ASK, json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, message: ClientFrame | None) -> Self:
        """Parse a request. Raises ValueError for any other message."""
        try:
            return cls(**_json(message, ASK))
        except TypeError as error:
            raise ValueError(str(error)) from error


def error_message(error: LogtwinError) -> ClientFrame:
    """An error as a message; `error_in` is the inverse."""
    return ClientFrame(ERROR, json.dumps(error.facts()).encode())


def error_in(message: ClientFrame) -> LogtwinError:
    return error_from(json.loads(message.body))


def next_message(stream: BinaryIO) -> ClientFrame | None:
    """Read a message; None if the other side has gone, between two messages or within one.

    Raises ValueError if the length is beyond LONGEST_BYTES.
    """
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    length, kind = _HEAD.unpack(head)
    if length > LONGEST_BYTES:
        raise ValueError(f"a message of {length:,} bytes")
    body = stream.read(length)
    return ClientFrame(kind, body) if len(body) == length else None


def _json(message: ClientFrame | None, kind: bytes) -> dict[str, Any]:
    if message is None or message.kind != kind:
        raise ValueError(f"expected {kind!r}, found {message and message.kind!r}")
    found = json.loads(message.body)
    if not isinstance(found, dict):
        raise ValueError(f"expected an object, found {type(found).__name__}")
    return found
