"""The connections of a service: accepted, served each by a task of its own, ended together.

A connection that fails ends alone and is said. However one ends, and if its task was cancelled before it began, its
socket is closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final

log = logging.getLogger(__name__)

READ_BYTES: Final = 128 * 1024
"""What one turn of a connection reads at most; another one has its turn then."""
BACKLOG: Final = 1024
"""serverSocketBacklog: clients that connect at once. One too many is not refused but tries again seconds later."""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class Connections:
    """Those of one service."""

    def __init__(self, serve: Serve, whose: str) -> None:
        """`serve` serves one until it ends; `whose` names them in the log."""
        self._serve = serve
        self._whose = whose
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._servers: list[asyncio.Server] = []

    @property
    def are_accepted(self) -> bool:
        """From the first `accept` to `end`."""
        return bool(self._servers)

    async def accept(self, listener: socket.socket) -> None:
        """From `listener`, which is bound, and is closed by `accept_no_more`."""
        server = await asyncio.start_server(self._begin, sock=listener, limit=READ_BYTES, backlog=BACKLOG)
        self._servers.append(server)
        log.info("serving %s on port %s", self._whose, listener.getsockname()[1])

    def accept_no_more(self) -> None:
        for server in self._servers:
            server.close()

    async def end(self) -> None:
        """Accept no more, and end every connection."""
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
        self._serving.pop(task).transport.abort()  # what is left in its buffer is for nobody
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("serving one of the %s ended in an error", self._whose, exc_info=error)
