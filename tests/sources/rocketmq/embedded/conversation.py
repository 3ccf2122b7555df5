"""Remoting conversations by hand: frames made and read without the project's codec."""

import asyncio
import json
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from sources.access.address import Address

Response = tuple[dict[str, Any], bytes]


def request(
    code: int, ext: dict[str, str] | None = None, body: bytes = b"", *, opaque: int = 1, flag: int = 0
) -> bytes:
    """A request with a JSON header, as a Python client would send it."""
    fields = {
        "code": code,
        "language": "PYTHON",
        "version": 401,
        "opaque": opaque,
        "flag": flag,
        "extFields": ext or {},
    }
    header = json.dumps(fields).encode()
    return struct.pack(">iI", 4 + len(header) + len(body), len(header)) + header + body


def send_fields(topic: str, queue: int, properties: str = "", **changes: str) -> dict[str, str]:
    """The ext fields of requests 310 and 320."""
    plain = {
        "a": "pg", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0", "g": "1795000000000", "h": "0",
        "i": properties, "j": "0", "k": "false", "m": "false", "n": "b1",
    }  # fmt: skip
    return plain | changes


def batch_item(body: bytes, properties: bytes = b"", flag: int = 0) -> bytes:
    head = struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


def split(frame: bytes) -> Response:
    """A whole frame with a JSON header -> header and body."""
    word = struct.unpack_from(">I", frame, 4)[0]
    assert word >> 24 == 0
    return json.loads(frame[8 : 8 + word]), frame[8 + word :]


async def heard(reader: asyncio.StreamReader) -> Response:
    """The next frame that comes: header and body."""
    head = await reader.readexactly(4)
    return split(head + await reader.readexactly(int.from_bytes(head, "big")))


def lenient_json(text: bytes) -> Any:
    """fastjson leaves integer keys unquoted; no text in these tests looks like one."""
    return json.loads(re.sub(rb"([{,]\s*)(-?\d+)(\s*:)", rb'\1"\2"\3', text))


class Conversation:
    """One connection to a master's normal port."""

    def __init__(self, connection: socket.socket, stream: BinaryIO) -> None:
        self.connection = connection
        self.stream = stream

    def say(self, frame: bytes) -> None:
        self.connection.sendall(frame)

    def hear_raw(self) -> bytes:
        length = self.stream.read(4)
        return length + self.stream.read(struct.unpack(">i", length)[0])

    def hear(self) -> Response:
        return split(self.hear_raw())

    def ask(self, *args: Any, **options: Any) -> Response:
        self.say(request(*args, **options))
        return self.hear()

    def is_closed(self) -> bool:
        """Whether the master ends the connection; waits for it."""
        return self.stream.read(1) == b""


@contextmanager
def conversation(address: Address) -> Iterator[Conversation]:
    with socket.create_connection((address.host, address.port), timeout=60) as sock, sock.makefile("rb") as stream:
        yield Conversation(sock, stream)
