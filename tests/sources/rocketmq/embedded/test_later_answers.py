"""A request that fails while it waits, beside others of its connection: a service whose handler waits for the test."""

from __future__ import annotations

import asyncio
import socket

import pytest

from sources.rocketmq.embedded.remoting_service import RemotingService
from sources.rocketmq.format.commitlog import Host
from sources.rocketmq.wire.remoting import Command
from tests.patience import soon
from tests.sources.rocketmq.embedded.conversation import heard, request
from tests.sources.rocketmq.embedded.scenarios import scenario


@scenario
async def test_a_failure_is_told_and_the_others_are_served(caplog: pytest.LogCaptureFixture) -> None:
    """HA-31: an exception ends one wait, and later requests are served."""
    waiting: dict[int, asyncio.Future[str]] = {}

    async def later(request: Command, _sender: Host) -> Command:
        waiting[request.opaque] = answer = asyncio.get_running_loop().create_future()
        return request.response(0, remark=await answer)

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    remoting = RemotingService({2: later}, lambda: None)
    await remoting.start(listener)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"".join(request(2, opaque=opaque) for opaque in (1, 2, 3)))
        await soon(lambda: len(waiting) == 3)
        waiting[1].set_exception(ValueError("something broke"))
        headers = []
        for _ in range(2):
            async with asyncio.timeout(60):
                headers.append((await heard(reader))[0])
            if not waiting[2].done():
                waiting[2].set_result("well")
        writer.close()
        await soon(waiting[3].cancelled)  # its client has gone
    finally:
        writer.close()
        await remoting.stop()
    assert [(header["opaque"], header["code"]) for header in headers] == [(1, 1), (2, 0)]
    assert "something broke" in headers[0]["remark"]
    assert headers[1]["remark"] == "well"
    assert "request 2 of 127.0.0.1" in caplog.text
