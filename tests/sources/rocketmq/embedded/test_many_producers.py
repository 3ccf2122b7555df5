"""Many producers that wait, and what becomes of them: all in one event loop, over real sockets."""

import asyncio
import json
import random
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sources.access.address import Address
from sources.rocketmq.embedded.double_write import DoubleWriteSettings
from sources.rocketmq.embedded.master import EmbeddedMaster
from tests.sources.rocketmq.embedded.conversation import heard, request, send_fields
from tests.sources.rocketmq.embedded.embedded import scenario, settings_for
from tests.sources.rocketmq.embedded.stores import messages_of

PUT_OK, FLUSH_SLAVE_TIMEOUT = 0, 12
PATIENCE_S = 30.0
NEVER_S = 3600.0
PRODUCERS, PIPELINED = 1000, 3

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def sync_master(store: Path, slave_timeout_s: float) -> AsyncIterator[EmbeddedMaster]:
    double_write = DoubleWriteSettings(role="SYNC_MASTER", slave_timeout_s=slave_timeout_s)
    master = EmbeddedMaster(replace(settings_for(store), double_write=double_write))
    await master.start()
    try:
        yield master
    finally:
        await master.stop()


@asynccontextmanager
async def connected(address: Address) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def follow(streams: Streams, *, is_mute: bool) -> None:
    """A slave from the first byte on; it acknowledges now and then, whatever part of the log it has got until then."""
    reader, writer = streams
    chance = random.Random(1)
    writer.write(struct.pack(">q", 0))
    while True:
        offset, size = struct.unpack(">qi", await reader.readexactly(12))
        await reader.readexactly(size)
        if not is_mute:
            writer.write(struct.pack(">q", offset + chance.randrange(size) if size else offset))
            writer.write(struct.pack(">q", offset + size))


async def hear(reader: asyncio.StreamReader) -> tuple[int, int]:
    """The next answer: opaque and code."""
    header, _ = await heard(reader)
    return header["opaque"], header["code"]


async def produce(master: EmbeddedMaster, number: int) -> Counter[tuple[int, int]]:
    """Sends a few messages at once; every answer until the connection ends."""
    async with connected(master.address) as (reader, writer):
        bodies = [f"{number}/{n}".encode() for n in range(PIPELINED)]
        frames = [request(310, send_fields("T1", -1), body, opaque=n) for n, body in enumerate(bodies)]
        writer.write(b"".join(frames))
        heard = Counter([await hear(reader) for _ in bodies])
        writer.write(request(28, opaque=77))  # overtakes nothing: nothing waits any more
        heard[await hear(reader)] += 1
        return heard


async def told(master: EmbeddedMaster, code: int) -> dict[str, Any]:
    async with connected(master.address) as (reader, writer):
        writer.write(request(code))
        found: dict[str, Any] = json.loads((await heard(reader))[1])
        return found


async def slaves(master: EmbeddedMaster) -> int:
    return len((await told(master, 907))["haConnectionInfo"])


@pytest.mark.job
@pytest.mark.parametrize(
    ("is_mute", "slave_timeout_s", "code"),
    [(False, NEVER_S, PUT_OK), (True, 1.0, FLUSH_SLAVE_TIMEOUT)],
    ids=["acknowledged", "mute slave"],
)
def test_a_thousand_producers_are_answered_exactly_once_each(
    tmp_path: Path, is_mute: bool, slave_timeout_s: float, code: int
) -> None:
    """HA-23, HA-25: each its own connection, and several messages in flight on each."""

    async def run() -> int:
        async with sync_master(tmp_path, slave_timeout_s) as master, connected(master.ha_address) as streams:
            following = asyncio.create_task(follow(streams, is_mute=is_mute))
            while not await slaves(master):
                await asyncio.sleep(0.01)
            async with asyncio.timeout(PATIENCE_S):
                heard = await asyncio.gather(*(produce(master, number) for number in range(PRODUCERS)))
            following.cancel()
            once = Counter({(n, code): 1 for n in range(PIPELINED)} | {(77, 0): 1})
            assert heard == [once] * PRODUCERS
            return int((await told(master, 28))["table"]["commitLogMaxOffset"])

    end = asyncio.run(run())
    bodies = {message.body for message in messages_of(tmp_path, end)}
    assert bodies == {f"{number}/{n}".encode() for number in range(PRODUCERS) for n in range(PIPELINED)}


@scenario
async def test_shutting_down_answers_everyone_who_waits(tmp_path: Path) -> None:
    """HA-13, HA-32: mended. No limit is near; each has its answer before its connection ends."""
    async with sync_master(tmp_path, NEVER_S) as master, connected(master.ha_address) as streams:
        following = asyncio.create_task(follow(streams, is_mute=True))
        while not await slaves(master):
            await asyncio.sleep(0.01)
        producers = [await asyncio.open_connection(master.address.host, master.address.port) for _ in range(20)]
        for reader, writer in producers:
            writer.write(request(310, send_fields("T1", -1), b"x", opaque=1) + request(28, opaque=2))
            assert await hear(reader) == (2, 0)  # so the other one waits
        await master.stop()
        following.cancel()
        for reader, writer in producers:
            assert await hear(reader) == (1, FLUSH_SLAVE_TIMEOUT)
            assert await reader.read() == b""
            writer.close()
