"""The master's normal port: remoting requests in, answers out, in order, many at a time.

What one read brings is answered together: all requests of it, then one `settle` (slaves are woken; with synchronous
flush the log is made durable), then one write. So a client that pipelines pays for neither a flush nor a system call a
message, and a client that waits for each answer loses nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from sources.errors import ProtocolViolation
from sources.rocketmq.broker.refusal import Refused
from sources.rocketmq.commitlog import Host
from sources.rocketmq.remoting import DEFAULT_MAX_FRAME_BYTES, Command, FrameBuffer, ResponseCode, encode_command

log = logging.getLogger(__name__)

READ_BYTES: Final = 128 * 1024
"""So much is answered before another connection gets its turn."""
CLOSE_TIMEOUT_S: Final = 1.0

Handler = Callable[[Command, Host], Command]
"""Answers a request of a sender. Raises Refused, and OSError where the disk fails."""


class RemotingService:
    """Serves requests by a table of handlers; what is not in it is answered with code 3."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        settle: Callable[[], None],
        *,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    ) -> None:
        """`settle` is called after each lot of requests and before their answers leave."""
        self._handlers = handlers
        self._settle = settle
        self._max_frame_bytes = max_frame_bytes
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        """Accept clients on `listener`, which is bound; the service closes it."""
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=READ_BYTES)
        log.info("serving clients on port %s", listener.getsockname()[1])

    async def stop(self) -> None:
        """Stop accepting, end every connection; answers that are ready still leave. Bounded."""
        if self._server is None:
            return
        self._server.close()
        serving = list(self._connections)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None
        log.info("no longer serving clients")

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a connection ended in an error", exc_info=error)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sender = _host(writer.get_extra_info("peername"))
        frames = FrameBuffer(self._max_frame_bytes)
        try:
            while data := await reader.read(READ_BYTES):
                writer.write(b"".join(self._answers(frames.feed(data), sender)))
                await writer.drain()
        except ProtocolViolation as error:
            log.warning("closing the connection of %s: %s", sender, error)
        except (ConnectionError, TimeoutError) as error:
            log.info("the connection of %s broke: %s", sender, error)
        finally:
            await _close(writer)

    def _answers(self, requests: Iterable[Command], sender: Host) -> list[bytes]:
        """The frames that answer `requests`, in order; one-way requests and stray responses have none."""
        answers = [(request, self._answer(request, sender)) for request in requests if not request.is_response]
        self._settle()
        return [encode_command(answer) for request, answer in answers if not request.is_one_way]

    def _answer(self, request: Command, sender: Host) -> Command:
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f"request code {request.code} is not supported"
            return request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        try:
            return handler(request, sender)
        except Refused as refused:
            log.debug("refused request %s of %s: %s", request.code, sender, refused.remark)
            return request.response(refused.code, remark=refused.remark)
        except OSError as error:
            log.exception("request %s of %s failed", request.code, sender)
            return request.response(ResponseCode.SERVICE_NOT_AVAILABLE, remark=f"the store cannot be written: {error}")


def _host(peer: tuple[str, int]) -> Host:
    """What the socket says of the other end -> Host."""
    return Host(ipaddress.ip_address(peer[0].partition("%")[0]).packed, peer[1])


async def _close(writer: asyncio.StreamWriter) -> None:
    """Let the answers leave, within a second."""
    writer.close()
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()
