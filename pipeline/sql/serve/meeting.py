"""Where ``logtwin sql --serve`` and its clients meet, and what they say there.

They meet at a socket that only its owner can reach: folder and socket belong to the owner alone; both are checked
before use. The socket's name says which replica is served and how: it is a hash of the absolute warehouse, of the
configuration sections on how to reach and read it, and of the user. logtwin's version is not part of it: a client of
another version must find the server, to say why it does not use it. The address of a socket has 108 bytes with the zero
at its end on Linux (sun_path of unix(7)), 104 on macOS.

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

import hashlib
import json
import os
import stat
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Self

from pipeline.system.folders import cache_folder
from sources.errors import ConfigurationError, LogtwinError, error_from

LONGEST_ADDRESS_BYTES: Final = 103
_OWNER_ONLY: Final = 0o700

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


def socket_path(given: Mapping[str, object]) -> Path:
    """The path of the socket for a configuration `given` as parsed TOML. Its folder need not exist.

    Raises ConfigurationError if the path is too long for a socket.
    """
    local = local_warehouse(given)
    named = [str(given["warehouse"] if local is None else local), given.get("storage"), given.get("spark"), os.getuid()]
    name = hashlib.sha256(json.dumps(named, sort_keys=True, default=str).encode()).hexdigest()[:16]
    path = _folder() / f"{name}.sock"
    if len(os.fsencode(path)) > LONGEST_ADDRESS_BYTES:
        raise ConfigurationError(
            f"the path of the socket is too long: {path}",
            expected=f"{LONGEST_ADDRESS_BYTES} bytes at most",
            found=len(os.fsencode(path)),
            hint="Set XDG_RUNTIME_DIR or LOGTWIN_CACHE to a folder with a shorter name.",
        )
    return path


def local_warehouse(given: Mapping[str, object]) -> Path | None:
    """The folder of the warehouse, absolute; None if it is not on a local disk."""
    warehouse = str(given.get("warehouse", "./warehouse"))
    return None if "://" in warehouse else Path(warehouse.removeprefix("file:")).resolve()


def _folder() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime).absolute() / "logtwin" if runtime else cache_folder().absolute() / "serve"


def make_folder(folder: Path) -> None:
    """Make the folder unless it exists. Raises ConfigurationError if others can enter it, or it cannot be made."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=_OWNER_ONLY, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"the folder {folder} cannot be made", found=error.strerror) from error
    check_owned(folder)


def check_owned(path: Path) -> None:
    """Check that only this user can use a folder or socket.

    Raises ConfigurationError if others can, FileNotFoundError if it does not exist.
    """
    found = path.lstat()
    is_ours = found.st_uid == os.getuid() and not found.st_mode & 0o077
    if is_ours and (stat.S_ISDIR(found.st_mode) or stat.S_ISSOCK(found.st_mode)):
        return
    raise ConfigurationError(
        f"others can use {path}: they could answer, or read the answers",
        expected=f"owner {os.getuid()}, and no rights for others",
        found=f"owner {found.st_uid}, {stat.filemode(found.st_mode)}",
        hint="Remove it, or take the rights away.",
    )


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
