"""The sockets that a service listens on, and its connections: each served by a task of its own, all ended together.

Sockets are bound before anything else, so a port that is taken is noticed first.

A connection that fails ends alone and is logged. However one ends, even if its task was cancelled before it began, its
socket is closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final

from sources.access.address import Address
from sources.errors import ConfigurationError

log = logging.getLogger(__name__)

READ_BYTES: Final = 128 * 1024
"""What a connection reads at most before others have their turn."""
BACKLOG: Final = 1024
"""serverSocketBacklog: clients that connect at once. One more is not refused, but tries again seconds later."""
VIP_PORT_BELOW: Final = 2
"""A broker also takes requests two ports below its own; slaves fetch topics there (`MixAll.brokerVIPChannel`)."""
ATTEMPTS: Final = 20

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


def address_of(listener: socket.socket) -> Address:
    host, port = listener.getsockname()[:2]
    return Address(host, port)


def bound(host: str, port: int, key: str) -> socket.socket:
    """Return a socket bound to `host` and `port`, for a service to listen on. Raises ConfigurationError."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise ConfigurationError(
            f"the master cannot listen at {host}:{port}",
            expected=f"a free {key}",
            found=error.strerror or str(error),
            hint=f"Stop what uses it, choose another {key}, or give 0 for a free one.",
        ) from error
    return listener


def bound_with_vip(host: str, port: int, attempts: int = ATTEMPTS) -> tuple[socket.socket, socket.socket]:
    """Return two sockets like `bound`, the second two ports below. Raises ConfigurationError; port 0: free ones."""
    listener = bound(host, port, "port")
    try:
        return listener, bound(host, address_of(listener).port - VIP_PORT_BELOW, "port, and the one two below")
    except ConfigurationError:
        listener.close()
        if port != 0 or attempts == 1:
            raise
    return bound_with_vip(host, port, attempts - 1)


class Connections:
    """The connections of one service."""

    def __init__(self, serve: Serve, whose: str) -> None:
        """`serve` serves one connection until it ends; `whose` names the connections in the log."""
        self._serve = serve
        self._whose = whose
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._servers: list[asyncio.Server] = []

    async def accept(self, listener: socket.socket) -> None:
        """Accept from `listener`, which is bound; `accept_no_more` closes it."""
        server = await asyncio.start_server(self._begin, sock=listener, limit=READ_BYTES, backlog=BACKLOG)
        self._servers.append(server)
        log.info("serving %s on port %s", self._whose, listener.getsockname()[1])

    def accept_no_more(self) -> None:
        for server in self._servers:
            server.close()

    async def end(self) -> None:
        """Accept no more connections, and end all of them. Idempotent."""
        if not self._servers:
            return
        self.accept_no_more()
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await asyncio.gather(*(server.wait_closed() for server in self._servers))
        self._servers.clear()
        log.info("no longer serving %s", self._whose)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving[task] = writer
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        writer = self._serving.pop(task)
        writer.transport.abort()  # nobody wants what is left in its buffer
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("serving one of the %s ended in an error", self._whose, exc_info=error)
