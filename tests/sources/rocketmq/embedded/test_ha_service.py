"""The HA service over real sockets: what a slave that says this or that gets. Frames are taken apart by hand."""

import asyncio
import logging
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

import pytest

from sources.offsets import Offset
from sources.rocketmq.embedded.ha_service import HAService, HASettings, Slave
from tests.patience import soon
from tests.sources.rocketmq.embedded.embedded import scenario

FILE_BYTES = 1000
PATIENCE_S = 60.0
NEVER_S = 3600.0


class MemoryLog:
    """A log of random bytes from `start` on, in files of 1000 bytes."""

    def __init__(self, size: int, start: int = 0) -> None:
        self.start = start
        self.data = random.Random(size).randbytes(size)

    @property
    def max_offset(self) -> Offset:
        return Offset(self.start + len(self.data))

    @property
    def last_file_start(self) -> Offset:
        return Offset(self.max_offset - self.max_offset % FILE_BYTES)

    def read(self, offset: int, size_bytes: int) -> bytes:
        if not self.start <= offset < self.max_offset:
            return b""
        end = min(offset + size_bytes, offset - offset % FILE_BYTES + FILE_BYTES)
        return self.data[offset - self.start : end - self.start]


@dataclass
class Client:
    """A slave made of a socket."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def report(self, *offsets: int) -> None:
        self.writer.write(b"".join(struct.pack(">q", offset) for offset in offsets))

    async def frame(self) -> tuple[int, bytes]:
        async with asyncio.timeout(PATIENCE_S):
            offset, size = struct.unpack(">qi", await self.reader.readexactly(12))
            return offset, await self.reader.readexactly(size)

    async def up_to(self, end: int) -> list[tuple[int, bytes]]:
        """Frames with data until one ends at `end`."""
        frames = [await self.frame()]
        while frames[-1][0] + len(frames[-1][1]) < end:
            frames.append(await self.frame())
        return frames

    async def is_closed(self) -> bool:
        """Whether the master ends the connection; waits for it."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while await self.reader.read(65536):
                    pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True


@dataclass
class Serving:
    """A service, its log, and the way to it."""

    log: MemoryLog
    service: HAService
    port: int
    clients: list[Client] = field(default_factory=list)

    async def connect(self, *, receive_buffer_bytes: int | None = None) -> Client:
        connection = socket.socket()
        if receive_buffer_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self.port))
        self.clients.append(Client(*await asyncio.open_connection(sock=connection, limit=1024)))
        return self.clients[-1]

    async def slave(self, count: int = 1) -> Slave:
        """The newest slave, once there are `count`."""
        await soon(lambda: len(self.service.slaves) == count)
        return self.service.slaves[-1]

    def append(self, data: bytes) -> None:
        self.log.data += data
        self.service.wake()


@asynccontextmanager
async def serving(log: MemoryLog, **settings: Any) -> AsyncIterator[Serving]:
    service = HAService(log, HASettings(**{"heartbeat_s": NEVER_S, "housekeeping_s": NEVER_S, **settings}))
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    await service.start(listener)
    served = Serving(log, service, port)
    try:
        yield served
    finally:
        await service.stop()
        for client in served.clients:
            client.writer.close()


@pytest.mark.parametrize(
    ("report", "start"), [(0, 3000), (1, 1), (17, 17), (999, 999), (1000, 1000), (2000, 2000), (3499, 3499)]
)
@scenario
async def test_the_first_report_asks_for_the_start(report: int, start: int) -> None:
    """HA-02."""
    async with serving(MemoryLog(3500)) as master:
        client = await master.connect()
        client.report(report)
        frames = await client.up_to(3500)
        assert frames[0][0] == start
        assert b"".join(body for _, body in frames) == master.log.data[start:]


@scenario
async def test_new_data_leaves_at_once() -> None:
    """HA-67: no heartbeat and no polling is due for an hour: only the wake can send it."""
    async with serving(MemoryLog(500)) as master:
        client = await master.connect()
        client.report(500)
        await soon(lambda: bool(master.service.slaves and master.service.slaves[0].requested))
        for n in range(5):
            master.append(bytes((n,)) * 10)
            assert await client.frame() == (500 + 10 * n, bytes((n,)) * 10)


@scenario
async def test_a_slave_is_said_when_it_comes_and_when_it_goes(caplog: pytest.LogCaptureFixture) -> None:
    """HA-18: and counted from the moment it is said, before it has said anything itself."""
    caplog.set_level(logging.INFO)
    async with serving(MemoryLog(500)) as master:
        client = await master.connect()
        slave = await master.slave()
        assert f"{slave} connected" in caplog.messages
        client.writer.close()
        await soon(lambda: not master.service.slaves)
        assert f"{slave} gone: it closed the connection" in caplog.messages


@scenario
async def test_a_silent_slave_is_dropped_and_one_that_reports_is_not() -> None:
    """HA-57."""
    async with serving(MemoryLog(2000), housekeeping_s=1.0) as master:
        silent, alive, mute = [await master.connect() for _ in range(3)]
        silent.report(1)

        async def keep_reporting() -> None:
            while True:
                alive.report(2000)
                await asyncio.sleep(0.05)

        reporting = asyncio.create_task(keep_reporting())
        assert await silent.is_closed()
        assert await mute.is_closed()  # never reported at all
        await soon(lambda: len(master.service.slaves) == 1)
        master.append(b"still here")
        assert await alive.frame() == (2000, b"still here")
        reporting.cancel()


class FailingLog(MemoryLog):
    """A log whose byte 700 cannot be read."""

    def read(self, offset: int, size_bytes: int) -> bytes:
        if offset <= 700 < offset + size_bytes:
            raise ValueError("byte 700 cannot be read")
        return super().read(offset, size_bytes)


@scenario
async def test_a_failure_ends_one_connection_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """HA-19, HA-21."""
    async with serving(FailingLog(2000), transfer_batch_bytes=100) as master:
        unlucky, lucky = await master.connect(), await master.connect()
        unlucky.report(1)
        assert await unlucky.is_closed()
        lucky.report(1000)
        assert b"".join(body for _, body in await lucky.up_to(2000)) == master.log.data[1000:]
    assert "byte 700 cannot be read" in caplog.text


@scenario
async def test_a_connection_that_cannot_be_set_up_ends_alone(caplog: pytest.LogCaptureFixture) -> None:
    """HA-19: it is said, its socket is closed, and the next slave is served."""
    async with serving(MemoryLog(500)) as master:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "sources.rocketmq.embedded.ha_service.Slave", Mock(side_effect=ValueError("no slave can be made"))
            )
            unlucky = await master.connect()
            assert await unlucky.is_closed()
        lucky = await master.connect()
        lucky.report(1)
        assert await lucky.frame() == (1, master.log.data[1:])
        assert len(master.service.slaves) == 1
    assert "no slave can be made" in caplog.text


@scenario
async def test_slaves_that_break_off_leave_nothing_behind() -> None:
    """HA-14, HA-19: with a reset, at any moment, before or after a report."""
    async with serving(MemoryLog(5000)) as master:
        for n in range(60):
            client = await master.connect()
            if n % 3:
                client.report(1)
            if n % 3 == 2:
                await client.frame()
            client.writer.transport.abort()
        await soon(lambda: master.service.slaves == ())
        steady = await master.connect()
        steady.report(4000)
        assert await steady.frame() == (4000, master.log.data[4000:])


@scenario
async def test_a_stop_is_quick_whatever_slaves_do() -> None:
    """HA-14, HA-17: nothing is due for an hour; with slaves that are idle, do not read, or have only just come."""
    async with serving(MemoryLog(4 * 1024 * 1024)) as master:
        idle, stuck = await master.connect(), await master.connect(receive_buffer_bytes=4096)
        stuck.report(1)
        await master.slave(2)
        late = await master.connect()
        async with asyncio.timeout(PATIENCE_S):
            await master.service.stop()
        assert [await client.is_closed() for client in (idle, stuck, late)] == [True] * 3
        assert master.service.slaves == ()
        await master.service.stop()
    socket.create_server(("127.0.0.1", master.port)).close()  # the port is free at once


@scenario
async def test_what_enough_slaves_hold_is_known() -> None:
    """HA-05, HA-08, HA-09: of the slaves connected now; nothing without them."""
    async with serving(MemoryLog(2000)) as master:
        assert [master.service.acknowledged_by(count) for count in (1, 2)] == [0, 0]
        clients = [await master.connect() for _ in range(3)]
        await master.slave(3)
        for client, offset in zip(clients, (1500, 500, 1000), strict=True):
            client.report(offset)
        await soon(lambda: {slave.acknowledged for slave in master.service.slaves} == {500, 1000, 1500})
        assert [master.service.acknowledged_by(count) for count in (1, 2, 3, 4)] == [1500, 1000, 500, 0]
        clients[0].writer.close()
        await master.slave(2)
        assert [master.service.acknowledged_by(count) for count in (1, 2, 3)] == [1000, 500, 0]


@scenario
async def test_only_an_acknowledgement_of_more_is_news() -> None:
    """HA-06, HA-07: equal and lower reports, heartbeats and lies wake nobody."""
    async with serving(MemoryLog(2000)) as master:
        heard: list[int] = []
        master.service.when_acknowledged(lambda: heard.append(master.service.acknowledged_by(1)))
        client = await master.connect()
        slave = await master.slave()
        for offset in (100, 100, 50, 120):
            client.report(offset)
            await soon(lambda offset=offset: slave.acknowledged == offset)  # type: ignore[misc]
        client.report(2001)
        assert await client.is_closed()
        assert heard == [100, 120]
