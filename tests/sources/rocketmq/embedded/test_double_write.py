"""What producers are told about slaves: a running master, slaves that say what the test tells them to."""

import asyncio
import json
import logging
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sources.access.address import Address
from sources.rocketmq.embedded.double_write import DoubleWriteSettings
from sources.rocketmq.embedded.master import EmbeddedMaster
from tests.patience import PATIENCE_S, wait_until
from tests.sources.rocketmq.embedded.conversation import Conversation, conversation, heard, request, send_fields
from tests.sources.rocketmq.embedded.embedded import end_of, running_master, scenario, settings_for
from tests.sources.rocketmq.embedded.stores import messages_of

PUT_OK, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT = 0, 11, 12
NEVER_S = 3600.0
SHORT_S = 0.2


def wait_for_slaves(master: EmbeddedMaster, *acknowledged: int) -> None:
    """Until the slaves connected, as the master tells them (907), are as many, with these acknowledged offsets."""

    def counted() -> list[int]:
        with conversation(master.address) as talk:
            return sorted(slave["slaveAckOffset"] for slave in json.loads(talk.ask(907)[1])["haConnectionInfo"])

    wait_until(lambda: counted() == sorted(acknowledged), lambda: f"{acknowledged}: the master counts {counted()}")


class ScriptedSlave:
    """A connection to the HA port. It does not read what is sent to it until it is asked to."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def report(self, offset: int) -> None:
        self._connection.sendall(struct.pack(">q", offset))

    def follow(self) -> None:
        """Acknowledge a log of one file as it comes, until the connection ends."""
        self.report(0)
        with self._connection.makefile("rb") as stream:
            try:
                while head := stream.read(12):
                    offset, size = struct.unpack(">qi", head)
                    stream.read(size)
                    self.report(offset + size)
            except (ConnectionError, struct.error):
                return


@contextmanager
def scripted_slave(master: EmbeddedMaster) -> Iterator[ScriptedSlave]:
    where = (master.ha_address.host, master.ha_address.port)
    with socket.create_connection(where, timeout=PATIENCE_S) as connection:
        yield ScriptedSlave(connection)


@contextmanager
def following_slave(master: EmbeddedMaster) -> Iterator[None]:
    """A slave that acknowledges at once everything it gets."""
    where = (master.ha_address.host, master.ha_address.port)
    with socket.create_connection(where) as connection:
        follower = threading.Thread(target=ScriptedSlave(connection).follow)
        follower.start()
        try:
            yield
        finally:
            connection.shutdown(socket.SHUT_RDWR)
            follower.join()


@contextmanager
def sync_master(
    store: Path, *, role: str = "SYNC_MASTER", sync_flush: bool = False, **settings: Any
) -> Iterator[EmbeddedMaster]:
    """A master whose producers wait for ever, unless the test says otherwise."""
    double_write = DoubleWriteSettings(**{"role": role, "slave_timeout_s": NEVER_S, **settings})
    with running_master(settings_for(store), double_write=double_write, sync_flush=sync_flush) as master:
        yield master


def say(talk: Conversation, properties: str = "", *, opaque: int = 7, body: bytes = b"x") -> None:
    """Send a message, and leave the answer for later."""
    talk.say(request(310, send_fields("T1", 0, f"UNIQ_KEY\x01k\x02{properties}"), body, opaque=opaque))


def is_waiting(talk: Conversation) -> bool:
    """Whether what was sent before is not answered yet: another request overtakes it. Only while something waits."""
    return bool(talk.ask(26, opaque=1)[0]["opaque"] == 1)


def status(talk: Conversation, properties: str = "") -> int:
    say(talk, properties)
    return answer(talk)


def answer(talk: Conversation) -> int:
    """The code of the answer to what was sent before; of a stored message its place is always told."""
    header, _ = talk.hear()
    assert header["opaque"] == 7
    assert header["extFields"]["queueId"] == "0"
    return int(header["code"])


def test_without_a_slave_it_is_not_available(tmp_path: Path) -> None:
    """HA-03, MS-04, MS-05: told at once, and the message is stored."""
    with sync_master(tmp_path) as master, conversation(master.address) as talk:
        assert status(talk) == SLAVE_NOT_AVAILABLE
        end = end_of(master.address)
    assert [message.body for message in messages_of(tmp_path, end)] == [b"x"]


def test_a_mute_slave_is_waited_for_so_long_and_no_longer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """HA-28, MS-05, MS-07: then it is FLUSH_SLAVE_TIMEOUT, an error with topic, tags and client, and stored."""
    with (
        sync_master(tmp_path, slave_timeout_s=SHORT_S) as master,
        scripted_slave(master) as slave,
        conversation(master.address) as talk,
    ):
        slave.report(0)
        wait_for_slaves(master, 0)
        started = time.monotonic()
        assert status(talk, "TAGS\x01tagA\x02") == FLUSH_SLAVE_TIMEOUT
        assert time.monotonic() - started >= SHORT_S
        end, client = end_of(master.address), "{}:{}".format(*talk.connection.getsockname())
    assert [message.body for message in messages_of(tmp_path, end)] == [b"x"]
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert f"topic T1, tags tagA, client {client}" in line.getMessage()


@pytest.mark.parametrize(
    ("role", "properties", "expected"),
    [
        ("ASYNC_MASTER", "", PUT_OK),
        ("ASYNC_MASTER", "WAIT\x01true\x02", PUT_OK),
        ("SYNC_MASTER", "WAIT\x01false\x02", PUT_OK),
        ("SYNC_MASTER", "a\x01b\x02WAIT\x01False", PUT_OK),
        ("SYNC_MASTER", "WAIT\x01true\x02WAIT\x01false\x02", PUT_OK),  # the last one wins
        ("SYNC_MASTER", "WAIT\x01no\x02", PUT_OK),  # as Boolean.parseBoolean
        ("SYNC_MASTER", "WAIT\x01true\x02", SLAVE_NOT_AVAILABLE),
        ("SYNC_MASTER", "WAIT\x01TRUE\x02", SLAVE_NOT_AVAILABLE),
        ("SYNC_MASTER", "WAIT\x01\x02", SLAVE_NOT_AVAILABLE),  # a pair without a value is none
        ("SYNC_MASTER", "NO_WAIT\x01false\x02", SLAVE_NOT_AVAILABLE),
    ],
)
def test_only_who_asks_a_sync_master_waits(tmp_path: Path, role: str, properties: str, expected: int) -> None:
    """MS-01, MS-02."""
    with sync_master(tmp_path, role=role) as master, conversation(master.address) as talk:
        assert status(talk, properties) == expected


@pytest.mark.parametrize(
    ("more_than_behind", "available"), [(1, True), (0, False), (-1, False)], ids=["below", "at", "above"]
)
def test_a_slave_that_is_too_far_behind_is_not_available(
    tmp_path: Path, more_than_behind: int, available: bool
) -> None:
    """HA-04, HA-05, MS-03: strictly less than the limit, counted to the end of this message, from 0 at first."""
    with sync_master(tmp_path, role="ASYNC_MASTER") as master, conversation(master.address) as talk:
        assert status(talk) == PUT_OK
        size = end_of(master.address)
    limit = 2 * size + more_than_behind
    with (
        sync_master(tmp_path, fall_behind_max_bytes=limit, slave_timeout_s=SHORT_S) as master,
        conversation(master.address) as talk,
        scripted_slave(master),
    ):
        wait_for_slaves(master, 0)  # connected, and it has said nothing
        assert status(talk) == (FLUSH_SLAVE_TIMEOUT if available else SLAVE_NOT_AVAILABLE)
        assert end_of(master.address) == 2 * size


def test_the_fastest_slave_decides(tmp_path: Path) -> None:
    """HA-08, MS-08, MS-10: it has each message before its producer has an answer; the other one is mute."""
    with (
        sync_master(tmp_path, fall_behind_max_bytes=600) as master,
        scripted_slave(master) as mute,
        following_slave(master),
        conversation(master.address) as talk,
    ):
        mute.report(0)
        wait_for_slaves(master, 0, 0)
        assert [status(talk) for _ in range(10)] == [PUT_OK] * 10
        assert end_of(master.address) > 1200


def test_a_slave_that_has_gone_does_not_count(tmp_path: Path) -> None:
    """HA-09: mended. Its acknowledgement goes with it; a slave that is far behind is not available for its sake."""
    with sync_master(tmp_path, fall_behind_max_bytes=600) as master, conversation(master.address) as talk:
        with following_slave(master):
            wait_for_slaves(master, 0)
            assert [status(talk) for _ in range(10)] == [PUT_OK] * 10
        wait_for_slaves(master)
        assert status(talk) == SLAVE_NOT_AVAILABLE
        with scripted_slave(master) as behind:
            behind.report(0)
            wait_for_slaves(master, 0)
            assert status(talk) == SLAVE_NOT_AVAILABLE


def test_a_slave_that_says_less_than_before_counts_for_less(tmp_path: Path) -> None:
    """HA-06, HA-09: mended. Lower reports answer nobody, nor does one byte less than the end; the end itself does:
    HA-07, HA-26, MS-06, MS-09. Afterwards it is judged by what it says now."""
    with (
        sync_master(tmp_path, fall_behind_max_bytes=200) as master,
        conversation(master.address) as talk,
        scripted_slave(master) as slave,
    ):
        slave.report(0)
        wait_for_slaves(master, 0)
        say(talk)
        end = end_of(master.address)
        for offset in (end - 1, 50, end - 1):
            slave.report(offset)
            wait_for_slaves(master, offset)
        assert is_waiting(talk)
        slave.report(end)
        assert answer(talk) == PUT_OK
        slave.report(50)
        wait_for_slaves(master, 50)
        assert status(talk) == SLAVE_NOT_AVAILABLE


# many producers that wait, and what becomes of them: all in one event loop


PRODUCERS, PIPELINED = 1000, 3

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def in_this_loop(store: Path, slave_timeout_s: float) -> AsyncIterator[EmbeddedMaster]:
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
        async with in_this_loop(tmp_path, slave_timeout_s) as master, connected(master.ha_address) as streams:
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
    async with in_this_loop(tmp_path, NEVER_S) as master, connected(master.ha_address) as streams:
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
