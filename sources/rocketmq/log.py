"""A RocketMQ commit log as a master log: read from its segment files, or from its broker over HA.

Over HA three things are kept apart. The range is checked against what the broker says it holds (remoting 28) before
any HA connection, because HA answers a wrong offset with heartbeats and nothing else. A connection that reads is never
started above the committed position, because its first report is an acknowledgement. And acknowledging has a
connection of its own, the session's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import pyarrow as pa

from sources.errors import AboveMaximum, BelowMinimum, ConfigurationError, LogtwinError
from sources.master import Chunk, Session
from sources.offsets import LogId, Offset, OffsetRange
from sources.rocketmq import columns
from sources.rocketmq.address import Address
from sources.rocketmq.broker_check import check_broker
from sources.rocketmq.client import RemotingClient
from sources.rocketmq.commitlog import DEFAULT_MAX_RECORD_BYTES, Limits
from sources.rocketmq.ha import DEFAULT_MAX_FRAME_BYTES
from sources.rocketmq.ha_client import ReadOptions, read_stream
from sources.rocketmq.segments import Segments
from sources.rocketmq.session import HASession
from sources.rocketmq.stream_chunks import LogEnd, chunk_stream

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketMQLog:
    """`sources.master.MasterLog` of a RocketMQ broker.

    Either `path`, a directory of segment files, or `master` (HA port) and `remoting` (normal port) of one broker.
    `parallel_reads` says that no producer waits for slaves: several tasks may read over HA at once, and from above the
    committed position. `connect_timeout_ms` is also how long the broker may take to answer a request.
    Raises ConfigurationError.
    """

    log_id: LogId
    master: Address | None = None
    remoting: Address | None = None
    path: str | None = None
    split_bytes: int = 64 * MIB
    chunk_bytes: int = 8 * MIB
    parallel_reads: bool = False
    connect_timeout_ms: int = 5000
    connect_attempts: int = 3
    silence_timeout_ms: int = 20_000
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES

    def __post_init__(self) -> None:
        given = (self.path is not None, self.master is not None, self.remoting is not None)
        if given not in ((True, False, False), (False, True, True)):
            raise ConfigurationError(
                "not one way to the log",
                log=self.log_id,
                expected="either path, or master and remoting",
                found=f"path {self.path}, master {self.master}, remoting {self.remoting}",
                hint="Give path to read segment files, or master (HA port) and remoting (normal port) to be a slave.",
            )

    def check(self) -> None:
        """Refuse a broker that speaks another protocol at its HA port, or that would count this replica twice."""
        if self.remoting is not None:
            with self._naming_the_log(), self._client(self.remoting) as client:
                check_broker(client.broker_config())

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        """As the contract says. `known`, an end found earlier, spares the look at files below it."""
        with self._naming_the_log():
            return self._segments().bounds(known) if self.remoting is None else self._broker_bounds(self.remoting)

    @property
    def cuts_at_records(self) -> bool:
        return self.path is not None

    def boundary_after(self, offset: Offset, maximum: Offset) -> Offset:
        if self.path is None:
            return offset
        with self._naming_the_log():
            return self._segments().boundary_after(offset, maximum)

    def plan(self, wanted: OffsetRange) -> tuple[OffsetRange, ...]:
        if self.path is None and not self.parallel_reads:
            return () if wanted.is_empty else (wanted,)
        return tuple(self._cut(wanted))

    def _cut(self, wanted: OffsetRange) -> Iterator[OffsetRange]:
        start = wanted.start
        while start < wanted.end:
            cut = Offset(start + self.split_bytes)
            end = self.boundary_after(cut, wanted.end) if cut < wanted.end else wanted.end
            yield OffsetRange(start, end)
            start = end

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk]:
        if owned.is_empty:
            return
        with self._naming_the_log():
            if self.master is None or self.remoting is None:
                yield from self._segments().chunks(owned, boundary, self.chunk_bytes)
            else:
                yield from self._read_ha(self.master, self.remoting, owned, committed, boundary)

    def restore(self, records: pa.RecordBatch) -> bytes:
        return columns.encode(records)

    def open_session(self) -> Session:
        if self.master is None or self.remoting is None:
            return SilentSession()
        broker = self.remoting
        return HASession(
            self.master,
            self.log_id,
            maximum=lambda: self._broker_bounds(broker).end,
            connect_timeout_ms=self.connect_timeout_ms,
        )

    def acknowledged_by_master(self) -> Offset | None:
        """The highest offset that the master counts as acknowledged by a slave connected now (907).

        None where nobody can say: of a path, of a broker without that request (4.x), of one without slaves.
        """
        if self.remoting is None:
            return None
        with self._naming_the_log(), self._client(self.remoting) as client:
            return client.highest_slave_offset()

    def _read_ha(
        self, master: Address, broker: Address, owned: OffsetRange, committed: Offset | None, boundary: bool
    ) -> Iterator[Chunk]:
        bounds = self._broker_bounds(broker)
        _check_range(owned, bounds)
        if not self.parallel_reads:
            _check_promise(owned.start, committed, bounds)
        with closing(read_stream(master, owned.start, self._read_options())) as pieces:
            yield from chunk_stream(
                pieces,
                owned,
                boundary=boundary,
                chunk_bytes=self.chunk_bytes,
                limits=self._limits(),
                log_end=LogEnd(bounds.end, ask=lambda: self._broker_bounds(broker).end),
            )

    def _broker_bounds(self, broker: Address) -> OffsetRange:
        with self._client(broker) as client:
            return client.commit_log_bounds()

    def _client(self, broker: Address) -> RemotingClient:
        return RemotingClient(
            broker,
            connect_timeout_ms=self.connect_timeout_ms,
            connect_attempts=self.connect_attempts,
            call_timeout_ms=self.connect_timeout_ms,
        )

    def _segments(self) -> Segments:
        return Segments(self.path or "", self._limits())

    def _limits(self) -> Limits:
        return Limits(max_record_bytes=self.max_record_bytes)

    def _read_options(self) -> ReadOptions:
        return ReadOptions(
            connect_timeout_ms=self.connect_timeout_ms,
            connect_attempts=self.connect_attempts,
            silence_timeout_ms=self.silence_timeout_ms,
            max_frame_bytes=self.max_frame_bytes,
        )

    @contextmanager
    def _naming_the_log(self) -> Iterator[None]:
        try:
            yield
        except LogtwinError as error:
            raise error.at(self.log_id) from error


class SilentSession:
    """The session of a log that is read from files: nobody there takes a promise, so none is ever made."""

    @property
    def acknowledged(self) -> Offset | None:
        return None

    def acknowledge(self, committed: Offset) -> None:
        """Nobody listens."""

    def close(self) -> None:
        """Nothing is open."""


def _check_range(owned: OffsetRange, bounds: OffsetRange) -> None:
    if owned.start < bounds.start:
        raise BelowMinimum(
            "the master no longer holds the offset to read from",
            offset=owned.start,
            expected=f"{bounds.start} or more: the master holds {bounds}",
            found=owned.start,
            hint="Its retention (fileReservedTime) deleted it first. Read it from a copy of the old segment files, or "
            "record the loss and go on from the minimum.",
        )
    if owned.end > bounds.end:
        offset = owned.start if owned.start > bounds.end else owned.end
        raise AboveMaximum(
            "the master's log ends before the offset to read",
            offset=offset,
            expected=f"{bounds.end} or less: the master holds {bounds}",
            found=offset,
            hint="The master lost its tail, or this is another master's log: compare it with the replica before you "
            "go on.",
        )


def _check_promise(start: Offset, committed: Offset | None, bounds: OffsetRange) -> None:
    """Asking for `start` promises everything below it. Below the master's minimum there is nothing left to promise."""
    if start > max(committed or 0, bounds.start):
        raise ConfigurationError(
            "reading from here would acknowledge what is not committed",
            offset=start,
            expected=f"a start at or below the committed position {committed or 0}, or at the master's minimum "
            f"{bounds.start}",
            found=start,
            hint="Start at the earliest offset, or set parallel_reads if no producer waits for this master's slaves.",
        )
