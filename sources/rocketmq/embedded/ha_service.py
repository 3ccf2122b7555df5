"""The master's side of replication: slaves connect, report their offsets, and are sent the log from there on.

There is one `Slave` per connection, with its own offset in the log and its own acknowledged one. What holds here,
and what the original leaves open or does badly (rows HA-01 … HA-32 of the seeds' behaviours):

* Nothing is sent before the first report. That requests the start: 0 is the start of the *last* file, −1 says nothing,
  anything else is taken as it is. A start outside the log gets heartbeats and no data, as from a real broker.
* Of the reports that one read brings only the last counts.
* A report above the log's end is a lie. It never counts (the original believed it, and acknowledged producers because
  of it), and it ends the connection: a later one at once, a first one as soon as another follows, because a slave that
  is ahead of the log does not become honest when the log has grown.
* What a slave has acknowledged counts while it is connected, and falls when it reports less. The original kept the
  highest offset that any slave had ever reported.
* New data leaves at once: whoever appends calls `wake`. Nobody polls.
* A slave that does not read holds up only itself: its buffer is bounded and its task waits.
* A connection that cannot be set up, or fails, ends alone and is logged.
* A port that is taken is an error, where the original went on without a listener.

All of it runs in one event loop. Nothing changes between two awaits of a task, so there are no locks.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NoReturn, Protocol

from sources.offsets import Offset
from sources.rocketmq.embedded.connections import Connections
from sources.rocketmq.wire.ha import ReportParser, encode_frame

log = logging.getLogger(__name__)

NO_REPORT: Final = -1
READ_BYTES: Final = 1024 * 1024
WRITE_BUFFER_BYTES: Final = 256 * 1024


class LogToServe(Protocol):
    """What the service needs of a store."""

    @property
    def max_offset(self) -> Offset:
        """The end of the log."""

    @property
    def last_file_start(self) -> Offset:
        """The start of the file that contains the end of the log."""

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return up to `size_bytes` from `offset`, within one file; nothing outside the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HASettings:
    """How to serve slaves; the defaults are a broker's."""

    transfer_batch_bytes: int = 32 * 1024  # haTransferBatchSize
    heartbeat_s: float = 5.0  # haSendHeartbeatInterval
    housekeeping_s: float = 20.0  # haHousekeepingInterval


class Slave:
    """One connection of a slave. Create it inside the event loop."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.connected_at = datetime.now(UTC)
        self.start: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()  # known with the first report
        self.requested: Offset | None = None  # its first report
        self.acknowledged = Offset(0)  # its last honest report: it holds everything below
        self.lie: str | None = None  # its first report, if that was above the end of the log
        self.next_transfer: Offset | None = None  # the next byte to send; None until the first report
        self.transferred_bytes = 0
        self.has_news = asyncio.Event()

    @property
    def transferred_bytes_per_s(self) -> int:
        """The mean over the life of the connection."""
        return int(self.transferred_bytes / max((datetime.now(UTC) - self.connected_at).total_seconds(), 1.0))

    def __str__(self) -> str:
        return f"slave {self.address}"


class HAService:
    """Serves one log to any number of slaves."""

    def __init__(self, store: LogToServe, settings: HASettings) -> None:
        self._store = store
        self._settings = settings
        self._slaves: list[Slave] = []
        self._connections = Connections(self._serve, "slaves")
        self._on_acknowledged: Callable[[], None] = lambda: None

    @property
    def slaves(self) -> tuple[Slave, ...]:
        """The slaves connected now, in the order of their connecting."""
        return tuple(self._slaves)

    def acknowledged_by(self, count: int) -> Offset:
        """Return the offset below which at least `count` connected slaves hold everything; 0 with fewer slaves."""
        offsets = sorted((slave.acknowledged for slave in self._slaves), reverse=True)
        return offsets[count - 1] if count <= len(offsets) else Offset(0)

    def when_acknowledged(self, heard: Callable[[], None]) -> None:
        """Call `heard` whenever a slave has acknowledged more than before."""
        self._on_acknowledged = heard

    async def start(self, listener: socket.socket) -> None:
        """Accept slaves on `listener`, which is bound; the service closes it."""
        await self._connections.accept(listener)

    async def stop(self) -> None:
        """Stop accepting, and end every connection. Takes a bounded time: a slave that does not read is cut off."""
        await self._connections.end()

    def wake(self) -> None:
        """Note that the log has grown."""
        for slave in self._slaves:
            slave.has_news.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = writer.get_extra_info("peername")[:2]
        slave = Slave(f"{host}:{port}")
        log.info("%s connected", slave)
        self._slaves.append(slave)
        try:
            log.info("%s gone: %s", slave, await self._until_it_ends(slave, reader, writer))
        finally:
            self._slaves.remove(slave)

    async def _until_it_ends(self, slave: Slave, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Run both directions at once; the first that ends stops the other. Return why."""
        both: list[asyncio.Task[str]] = [
            asyncio.create_task(self._receive(slave, reader)),
            asyncio.create_task(self._transfer(slave, writer)),
        ]
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            results = await asyncio.gather(*both, return_exceptions=True)
        ended = next(result for task, result in zip(both, results, strict=True) if task in done)
        if isinstance(ended, BaseException) and not isinstance(ended, OSError):
            raise ended
        return str(ended)

    async def _receive(self, slave: Slave, reader: asyncio.StreamReader) -> str:
        """Process the slave's reports; return why it ended."""
        reports = ReportParser()
        while True:
            try:
                async with asyncio.timeout(self._settings.housekeeping_s):
                    data = await reader.read(READ_BYTES)
            except TimeoutError:
                return f"silent for {self._settings.housekeeping_s:g} s"
            if not data:
                return "it closed the connection"
            offsets = reports.feed(data)
            if offsets and (lie := self._heed(slave, offsets[-1])):
                return lie

    def _heed(self, slave: Slave, report: Offset) -> str | None:
        """Take one report; return the lie that ends the connection, if there is one."""
        end = self._store.max_offset
        lie = f"it reports {report}, and the log ends at {end}" if report > end else None
        if slave.requested is not None and (lie or slave.lie):
            return lie or slave.lie
        if slave.requested is None and report != NO_REPORT:
            self._begin(slave, report)
            slave.lie = lie
        if not lie:
            self._acknowledge(slave, Offset(max(report, 0)))
        return None

    def _acknowledge(self, slave: Slave, offset: Offset) -> None:
        is_more = offset > slave.acknowledged
        slave.acknowledged = offset
        if is_more:
            self._on_acknowledged()

    def _begin(self, slave: Slave, request: Offset) -> None:
        start = request if request != 0 else self._store.last_file_start
        slave.requested, slave.next_transfer = request, start
        slave.start.set_result(start)
        log.info("%s asks for %s, gets the log from %s", slave, request, start)

    async def _transfer(self, slave: Slave, writer: asyncio.StreamWriter) -> NoReturn:
        """Send the log for ever, and a heartbeat if there is nothing to send."""
        writer.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        at = await slave.start
        while True:
            data = self._store.read(at, self._settings.transfer_batch_bytes) or await self._news(slave, at)
            writer.write(encode_frame(at, data))
            at = slave.next_transfer = Offset(at + len(data))
            slave.transferred_bytes += len(data)
            await writer.drain()
            await asyncio.sleep(0)  # a socket that takes everything must not keep the loop to itself

    async def _news(self, slave: Slave, at: Offset) -> bytes:
        """Return the data at `at` as soon as there is some; nothing when a heartbeat is due."""
        try:
            async with asyncio.timeout(self._settings.heartbeat_s):
                while True:
                    slave.has_news.clear()
                    if data := self._store.read(at, self._settings.transfer_batch_bytes):
                        return data
                    await slave.has_news.wait()
        except TimeoutError:
            return b""
