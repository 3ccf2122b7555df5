"""A broker that a test speaks for: it hears requests and answers what the test says."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sources.access.address import Address

Request = tuple[dict[str, Any], bytes]


class ScriptedBroker:
    """One connection, spoken to by hand."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._stream = connection.makefile("rb")

    def hear(self) -> Request:
        length, header_length = struct.unpack(">iI", self._stream.read(8))
        header = json.loads(self._stream.read(header_length))
        return header, self._stream.read(length - 4 - header_length)

    def answer(self, opaque: int, code: int = 0, remark: str | None = None, **fields: str) -> None:
        header = {"code": code, "flag": 1, "opaque": opaque, "language": "JAVA", "version": 513, "extFields": fields}
        if remark:
            header["remark"] = remark
        data = json.dumps(header).encode()
        self.connection.sendall(struct.pack(">iI", 4 + len(data), len(data)) + data)


@contextmanager
def broker(script: Callable[[ScriptedBroker], None]) -> Iterator[Address]:
    failures: list[BaseException] = []

    def run() -> None:
        connection, _ = listener.accept()
        with connection:
            try:
                script(ScriptedBroker(connection))
            except AssertionError as error:
                failures.append(error)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield Address("127.0.0.1", listener.getsockname()[1])
        finally:
            thread.join(10)
        assert failures == []
