"""A TCP link on loopback to a port, which a test silences, slows down, breaks and mends while it is in use."""

import contextlib
import socket
import threading
import time
from enum import Enum
from types import TracebackType
from typing import Self

from sources.access.address import Address

PIECE_BYTES = 64 * 1024
_LOOK_S = 0.05


class Fault(Enum):
    NONE = "none"
    SILENT = "silent"  # they are there, and nothing passes
    DRIPPING = "dripping"  # a byte a second passes to the client
    GONE = "gone"  # they end, and so does each new one


class Link:
    """Forwards to `target` as long as the `with` lasts. A fault that ends breaks what was connected meanwhile."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        self._fault = Fault.NONE
        self._sockets: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _end(self._listener)
        self._break()
        self._thread.join()

    def meet(self, fault: Fault) -> None:
        """From now on; what was connected goes on with it, unless it is gone or mended."""
        self._fault = fault
        if fault in (Fault.NONE, Fault.GONE):
            self._break()

    def _break(self) -> None:
        for sock in list(self._sockets):
            _end(sock)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                if self._fault is Fault.GONE:
                    _end(client)
                    continue
                server = socket.create_connection((self._target.host, self._target.port))
                self._sockets |= {client, server}
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=(*ends, ends[1] is client), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, is_to_client: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE_BYTES):
                self._pass(data, sink, is_to_client)
        for sock in (source, sink):
            self._sockets.discard(sock)
            _end(sock)

    def _pass(self, data: bytes, sink: socket.socket, is_to_client: bool) -> None:
        while data:
            if self._fault is Fault.SILENT and sink.fileno() >= 0:
                time.sleep(_LOOK_S)
            elif self._fault is Fault.DRIPPING and is_to_client:
                sink.sendall(data[:1])
                data = data[1:]
                time.sleep(1.0)
            else:
                sink.sendall(data)
                return


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
