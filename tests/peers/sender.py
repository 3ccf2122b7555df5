"""Producers that wait for their answer: sent at a steady rate, each timed, over a connection made anew when it breaks.

The rate does not depend on the answers, so a master that answers late is not spared the messages meanwhile. What was
sent when a connection broke stays without an answer and is not sent again: every message has a unique key of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from sources.rocketmq.wire.remoting import Command, FrameBuffer, RequestCode, ResponseCode, encode_command
from sources.rocketmq.wire.send_header import SendHeader, encode_send_header

RECONNECT_EVERY_S = 0.05
ANSWER_WITHIN_S = 30.0
BODY = bytes(range(256))


@dataclass(frozen=True, slots=True)
class Sent:
    """A message and the broker's answer; `code` and `offset` are None where the connection broke before it came."""

    unique_key: str
    code: int | None
    offset: int | None
    latency_s: float

    @property
    def is_ok(self) -> bool:
        return self.code == ResponseCode.SUCCESS


class Sender:
    """Sends to a topic of its own on the broker at a port of the loopback. Not for two threads at once."""

    def __init__(self, port: int, topic: str) -> None:
        self.topic = topic
        self.asked = self.answers = 0  # so far, over all calls; may be watched from another thread
        self._port = port
        self._numbers = itertools.count(1)

    def send(self, count: int, *, rate_per_s: float = 250.0, wait: bool = True) -> list[Sent]:
        """`count` messages in order. `wait` False asks the broker not to wait for its slaves."""
        return asyncio.run(self._send_all(count, rate_per_s, wait))

    async def _send_all(self, count: int, rate_per_s: float, wait: bool) -> list[Sent]:
        link = await _Link.to(self._port)
        tasks = []
        due = time.monotonic()
        for _ in range(count):
            await asyncio.sleep(due - time.monotonic())
            if link.has_broken:
                link = await _Link.to(self._port)
            tasks.append(asyncio.create_task(self._send_one(link, next(self._numbers), wait)))
            due = max(due, time.monotonic() - 1) + 1 / rate_per_s  # what a broken link held back is not hurried
        sent = await asyncio.gather(*tasks)
        await link.close()
        return sent

    async def _send_one(self, link: _Link, number: int, wait: bool) -> Sent:
        key = f"{self.topic}-{number}"
        started = time.monotonic()
        self.asked += 1
        try:
            answer = await asyncio.wait_for(link.call(_request(self.topic, key, number, wait)), ANSWER_WITHIN_S)
        except ConnectionError:
            return Sent(key, None, None, time.monotonic() - started)
        self.answers += 1
        message_id = answer.ext_fields.get("msgId", "")
        offset = int(message_id[-16:], 16) if message_id else None
        return Sent(key, answer.code, offset, time.monotonic() - started)


def _request(topic: str, key: str, number: int, wait: bool) -> Command:
    code = RequestCode.SEND_MESSAGE_V2
    properties = f"UNIQ_KEY\x01{key}\x02" + ("" if wait else "WAIT\x01false\x02")
    now_ms = time.time_ns() // 1_000_000
    header = SendHeader(
        producer_group="waiting", topic=topic, queue_id=0, born_timestamp_ms=now_ms, properties=properties
    )
    return Command(code, number, ext_fields=encode_send_header(header, code), body=BODY)


class _Link:
    """A connection; answers are matched by their opaque."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.has_broken = False
        self._writer = writer
        self._open: dict[int, asyncio.Future[Command]] = {}
        self._reading = asyncio.create_task(self._read(reader))

    @classmethod
    async def to(cls, port: int) -> Self:
        """Connects, as often as it takes."""
        while True:
            try:
                return cls(*await asyncio.open_connection("127.0.0.1", port))
            except OSError:
                await asyncio.sleep(RECONNECT_EVERY_S)

    async def call(self, request: Command) -> Command:
        """The answer to `request`. Raises ConnectionError where the connection breaks first."""
        if self.has_broken:
            raise ConnectionResetError("it broke before the request went out")
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._open[request.opaque] = answer
        self._writer.write(encode_command(request))
        return await answer

    async def close(self) -> None:
        self._writer.close()
        await self._reading

    async def _read(self, reader: asyncio.StreamReader) -> None:
        frames = FrameBuffer()
        with suppress(OSError):  # as an end of stream: what is open stays without an answer
            while data := await reader.read(64 * 1024):
                for command in frames.feed(data):
                    if command.is_response and command.opaque in self._open:
                        self._open.pop(command.opaque).set_result(command)
        self.has_broken = True
        self._writer.close()
        for answer in self._open.values():
            answer.set_exception(ConnectionResetError("it broke before the answer came"))
