"""A TCP link on loopback to a port, which tests silence, slow down, break and mend; or which breaks at some byte."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Self

from sources.access.address import Address

PIECE_BYTES = 64 * 1024
UNLIMITED = 2**62
_LOOK_S = 0.05


class Fault(Enum):
    NONE = "none"
    SILENT = "silent"  # they are there, and nothing passes
    DRIPPING = "dripping"  # a byte a second passes to the client
    GONE = "gone"  # they end, and so does each new one


@dataclass(frozen=True, slots=True)
class Cut:
    """Of one connection: exactly so many bytes pass to the client, or to the server, then both ends are closed."""

    to_client: bool
    after_bytes: int

    def allowed_bytes(self, *, to_client: bool) -> int:
        return self.after_bytes if to_client == self.to_client else UNLIMITED


NEVER = Cut(to_client=True, after_bytes=UNLIMITED)


def random_cuts(seed: int, count: int, longest: int) -> Iterator[Cut]:
    """One for each of `count` connections: half of them within the first HA heads, others anywhere.

    A slave sends 8 bytes at once and more only after seconds, so cuts towards the master come within the first 8.
    """
    chance = random.Random(seed)
    for _ in range(count):
        is_early = chance.random() < 0.5
        if is_early and chance.random() < 0.5:
            yield Cut(to_client=False, after_bytes=chance.randrange(9))
        else:
            yield Cut(to_client=True, after_bytes=chance.randrange(40 if is_early else longest))


class Link:
    """Forwards to `target` as long as the `with` lasts. A fault that ends breaks what was connected meanwhile.

    `cuts` are those of the first connections, in the order in which they come, and those after them are left alone. A
    connection that ends before its cut leaves it to a later one, which it cuts sooner: all of them are made in the end.
    """

    def __init__(self, target: Address, *, cuts: Iterable[Cut] = ()) -> None:
        self.cut_connections = 0
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        self._fault = Fault.NONE
        self._cuts = iter(cuts)
        self._left_over: deque[Cut] = deque()
        self._connections: set[_Connection] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        _end(self._listener)
        self._break()
        self._thread.join()

    def meet(self, fault: Fault) -> None:
        """From now on; what was connected goes on with it, unless it is gone or mended."""
        self._fault = fault
        if fault in (Fault.NONE, Fault.GONE):
            self._break()

    def _break(self) -> None:
        for one in list(self._connections):
            one.end()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                try:
                    if self._fault is Fault.GONE:
                        raise ConnectionResetError
                    server = socket.create_connection((self._target.host, self._target.port))
                except OSError:
                    _end(client)
                    continue
                cut = next(self._cuts, None) or (self._left_over.popleft() if self._left_over else NEVER)
                one = _Connection(client, server, cut)
                self._connections.add(one)
                for is_to_client in (False, True):
                    threading.Thread(target=self._forward, args=(one, is_to_client), daemon=True).start()

    def _forward(self, one: _Connection, is_to_client: bool) -> None:
        source, sink = (one.server, one.client) if is_to_client else (one.client, one.server)
        left_bytes = one.cut.allowed_bytes(to_client=is_to_client)
        with contextlib.suppress(OSError):
            while left_bytes > 0 and (data := source.recv(PIECE_BYTES)):
                self._pass(data[:left_bytes], sink, is_to_client)
                left_bytes -= len(data)
        is_first = one.end()
        self._connections.discard(one)
        if is_first:  # the other way had not ended
            self.cut_connections += left_bytes <= 0
            if left_bytes > 0 and one.cut is not NEVER:
                self._left_over.append(Cut(one.cut.to_client, one.cut.after_bytes // 2))

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


class _Connection:
    def __init__(self, client: socket.socket, server: socket.socket, cut: Cut) -> None:
        self.client, self.server, self.cut = client, server, cut
        self._is_open = threading.Lock()

    def end(self) -> bool:
        """Both ends; whether this was the first call."""
        is_first = self._is_open.acquire(blocking=False)
        for sock in (self.client, self.server):
            _end(sock)
        return is_first


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
