"""The master's normal port: remoting requests in, answers out, many at a time.

The requests that one read brings are answered together: all of them, then one `settle` (slaves are woken; with
synchronous flush the log is made durable), then one write. So a client that pipelines pays neither a flush nor a system
call per message, and a client that waits for each answer loses nothing.

A handler may answer later. Then other requests of the connection overtake this one, because answers are matched by
their opaque. A later answer never leaves before the `settle` of its request either, and answers that become ready
together leave in one write. Every request is answered exactly once, unless its client has gone: then nobody waits for
it any more.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final

from sources.errors import ProtocolViolation
from sources.rocketmq.embedded.connections import READ_BYTES, Connections
from sources.rocketmq.format.layout import Host
from sources.rocketmq.wire.remoting import Command, FrameBuffer, ResponseCode, encode_command


class Refused(Exception):
    """The request is answered with `code` and `remark`; nothing was stored.

    Not derived from `sources.errors`: it is for the client that asked, not for an operator.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S: Final = 1.0

Answer = Command | Coroutine[Any, Any, Command]
"""An answer now, or later. What a later one does up to its first `await` happens after its request's `settle`."""
Handler = Callable[[Command, Host], Answer]
"""Answers a request of a sender. Raises Refused, and OSError if the disk fails."""


class _Client:
    """One client: its address, and the answers that it waits for."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.sender = _host(writer.get_extra_info("peername"))
        self._writer = writer
        self._waiting: set[asyncio.Task[Command]] = set()
        self._ready: list[bytes] = []

    @property
    def waiting(self) -> frozenset[asyncio.Task[Command]]:
        """The answers that are not known yet."""
        return frozenset(self._waiting)

    def expect(self, request: Command, answer: Coroutine[Any, Any, Command]) -> None:
        """Send the answer to `request` when it is known."""
        task = asyncio.create_task(answer)
        self._waiting.add(task)
        task.add_done_callback(partial(self._take, request))

    def end(self) -> None:
        """Send what is ready; nobody waits for the rest."""
        self._send_ready()
        for task in self._waiting:
            task.cancel()

    def _take(self, request: Command, task: asyncio.Task[Command]) -> None:
        self._waiting.discard(task)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            log.error("request %s of %s failed later", request.code, self.sender, exc_info=error)
            answer = request.response(ResponseCode.SYSTEM_ERROR, remark=f"the master failed: {error}")
        else:
            answer = task.result()
        if request.is_one_way:
            return
        if not self._ready:
            asyncio.get_running_loop().call_soon(self._send_ready)
        self._ready.append(encode_command(answer))

    def _send_ready(self) -> None:
        frames, self._ready = self._ready, []
        if frames and not self._writer.is_closing():
            self._writer.write(b"".join(frames))


class RemotingService:
    """Serves requests with a table of handlers; any other request is answered with code 3."""

    def __init__(self, handlers: Mapping[int, Handler], settle: Callable[[], None]) -> None:
        """`settle` is called after each lot of requests, before their answers leave."""
        self._handlers = handlers
        self._settle = settle
        self._connections = Connections(self._serve, "clients")
        self._clients: set[_Client] = set()

    async def start(self, *listeners: socket.socket) -> None:
        """Accept clients on `listeners`, which are bound; the service closes them."""
        for listener in listeners:
            await self._connections.accept(listener)

    async def stop(self) -> None:
        """Stop accepting, and end every connection. Answers that are ready, or are within a second, still leave."""
        self._connections.accept_no_more()
        if waiting := [answer for client in self._clients for answer in client.waiting]:
            await asyncio.wait(waiting, timeout=CLOSE_TIMEOUT_S)
        await self._connections.end()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client, frames = _Client(writer), FrameBuffer()
        self._clients.add(client)
        try:
            while data := await reader.read(READ_BYTES):
                writer.write(b"".join(self._answers(frames.feed(data), client)))
                await writer.drain()
        except ProtocolViolation as error:
            log.warning("closing the connection of %s: %s", client.sender, error)
        except (ConnectionError, TimeoutError) as error:
            log.info("the connection of %s broke: %s", client.sender, error)
        finally:
            self._clients.remove(client)
            client.end()
            await _close(writer)

    def _answers(self, requests: Iterable[Command], client: _Client) -> list[bytes]:
        """Return the frames that answer `requests` now, in order; one-way requests and stray responses have none."""
        answers = [(request, self._answer(request, client)) for request in requests if not request.is_response]
        self._settle()
        return [encode_command(answer) for request, answer in answers if answer and not request.is_one_way]

    def _answer(self, request: Command, client: _Client) -> Command | None:
        """Return the answer; None if it comes later."""
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f"request code {request.code} is not supported"
            return request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        try:
            answer = handler(request, client.sender)
        except Refused as refused:
            log.debug("refused request %s of %s: %s", request.code, client.sender, refused.remark)
            return request.response(refused.code, remark=refused.remark)
        except OSError as error:
            log.exception("request %s of %s failed", request.code, client.sender)
            return request.response(ResponseCode.SERVICE_NOT_AVAILABLE, remark=f"the store cannot be written: {error}")
        if isinstance(answer, Command):
            return answer
        client.expect(request, answer)
        return None


def _host(peer: tuple[str, int]) -> Host:
    """Convert the socket's address of the other end."""
    return Host(ipaddress.ip_address(peer[0].partition("%")[0]).packed, peer[1])


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close the connection, after waiting up to a second for the answers to leave."""
    writer.close()
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()
