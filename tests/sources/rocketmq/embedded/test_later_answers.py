"""Requests that are answered later than others of their connection: a service with handlers that wait for the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from sources.rocketmq.embedded.remoting_service import RemotingService
from sources.rocketmq.format.commitlog import Host
from sources.rocketmq.wire.remoting import Command
from tests.patience import soon
from tests.sources.rocketmq.embedded.conversation import request, split
from tests.sources.rocketmq.embedded.scenarios import scenario

NOW, LATER = 1, 2
PATIENCE_S = 60.0


@dataclass
class Service:
    """A service: 1 is answered at once, 2 once `answer` is called with its opaque. `events` says what happened."""

    events: list[str] = field(default_factory=list)
    waiting: dict[int, asyncio.Future[str]] = field(default_factory=dict)
    port: int = 0

    def now(self, request: Command, _sender: Host) -> Command:
        return request.response(0)

    async def later(self, request: Command, _sender: Host) -> Command:
        self.events.append(f"waits {request.opaque}")
        self.waiting[request.opaque] = answer = asyncio.get_running_loop().create_future()
        try:
            return request.response(0, remark=await answer)
        except asyncio.CancelledError:
            self.events.append(f"cancelled {request.opaque}")
            raise

    def answer(self, *opaques: int) -> None:
        for opaque in opaques:
            self.waiting[opaque].set_result(f"answer {opaque}")


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def ask(self, code: int, opaque: int, flag: int = 0) -> None:
        self.writer.write(request(code, opaque=opaque, flag=flag))

    async def hear(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readexactly(4)
            return split(head + await self.reader.readexactly(int.from_bytes(head, "big")))[0]


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Service, RemotingService, Client]]:
    service = Service()
    listener = socket.create_server(("127.0.0.1", 0))
    remoting = RemotingService({NOW: service.now, LATER: service.later}, lambda: service.events.append("settled"))
    service.port = listener.getsockname()[1]
    await remoting.start(listener)
    client = Client(*await asyncio.open_connection("127.0.0.1", service.port))
    try:
        yield service, remoting, client
    finally:
        client.writer.close()
        await remoting.stop()


@scenario
async def test_a_failure_is_told_and_the_others_are_served(caplog: pytest.LogCaptureFixture) -> None:
    """HA-31: an exception ends one wait, and later requests are served."""
    async with serving() as (service, _, client):
        client.ask(LATER, 1)
        client.ask(LATER, 2)
        await soon(lambda: len(service.waiting) == 2)
        service.waiting[1].set_exception(ValueError("something broke"))
        header = await client.hear()
        assert (header["opaque"], header["code"], "something broke" in header["remark"]) == (1, 1, True)
        service.answer(2)
        assert (await client.hear())["code"] == 0
    assert "request 2 of 127.0.0.1" in caplog.text
