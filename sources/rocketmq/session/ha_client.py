"""Reads a master's log over HA for one task: a slave that takes the bytes and promises nothing new.

The first report of a connection is the request "send from here" and also the promise "I hold everything below". So a
connection reports only one offset: the requested start, which the caller has committed. The report is repeated only so
that the master does not take the reader for dead. For the same reason a broken connection is not resumed at the bytes
already received: the reader asks for the same start again and skips what it has handed over.

The skipped bytes must be those that were handed over. By then another master may be at the address, or the same one
without the tail that it had not flushed; to go on would mix two histories, in the middle of a record. So the stream
ends with MasterReplaced, which a retry can help: nothing of the new history was taken, and the proof before the next
attempt says which history the replica has (`sinks/values/continuity.py`).

A master that counts connections instead of slaves must never have two of ours. `forgotten_after_s` is for these: the
master must be known to have ended a connection before another one is made and before reading ends. Otherwise reading
fails, after a silence so long that the master no longer counts the connection.

A master in controller mode says with each head below which offset no fail-over takes anything back. What lies above is
kept here until that offset has moved beyond it.

The first byte of a log cannot be requested, because a report of 0 means "from the start of the last file". The reader
asks for 1 and puts the byte back: it is the top byte of the first record's size, 0x00 for any record below 16 MiB. (A
larger one would fail the check of its size, loudly.)
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from isal.isal_zlib import adler32, crc32

from sources.access.address import Address
from sources.errors import MasterReplaced, MasterSilent, MasterUnreachable
from sources.master import TimeIsUp
from sources.offsets import Offset
from sources.rocketmq.session.ha_connection import ENDED, connect_slave, say_goodbye
from sources.rocketmq.wire.ha import DEFAULT_MAX_FRAME_BYTES, Dialect, Frame, FrameParser, Plain

RECEIVE_BYTES: Final = 1024 * 1024
_FIRST_BYTE: Final = b"\0"
_MOST_UNCONFIRMED_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HAReadOptions:
    """How long to wait, how often to try, how much to take at once, and how long an end may go unconfirmed."""

    connect_timeout_ms: int = 5000
    connect_attempts: int = 3
    silence_timeout_ms: int = 20_000
    report_interval_ms: int = 5000
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    forgotten_after_s: float | None = None
    patience_s: float | None = None
    dialect: Dialect = field(default_factory=Plain)


def read_stream(master: Address, start: Offset, options: HAReadOptions | None = None) -> Generator[bytes, None, None]:
    """Yield the log's bytes from `start` on, in order, as they come, for as long as the caller asks for more.

    The caller asks only for what it knows to be there: waiting longer than `silence_timeout_ms` is an error. A
    connection that the master closes is replaced, until `connect_attempts` connections in a row have brought nothing
    new. (Each must get beyond what the earlier ones brought.)

    Raises MasterUnreachable, MasterSilent, MasterReplaced, ProtocolViolation; TimeIsUp if there is nothing to take and
    `patience_s` have passed since the first request.
    """
    options = options or HAReadOptions()
    patience = _Patience(options.patience_s)
    delivered = _Prefix()
    fruitless = 0
    while fruitless < options.connect_attempts:
        before = delivered
        if fruitless:
            time.sleep(min(0.05 * 2**fruitless, 2.0))
        try:
            with closing(_read_connection(master, start, options, patience)) as pieces:
                for data in _behind(before, pieces, master, start):
                    delivered = delivered.plus(data)
                    yield data
        except _Closed as closed:
            cause = closed
        fruitless = fruitless + 1 if delivered.length == before.length else 0
    raise MasterUnreachable(
        f"the master at {master} closed the connection, {fruitless} times in a row without anything new",
        offset=start + delivered.length,
        expected="the log's bytes",
        found=cause,
        hint="The master's log says why it closes.",
    )


class _Patience:
    """A timer that starts at its first use: a process that is busy with other bytes does not wait for the master."""

    def __init__(self, patience_s: float | None) -> None:
        self._patience_s = float("inf") if patience_s is None else patience_s
        self._ends_s: float | None = None

    def left_s(self) -> float:
        """Return the seconds left; 0 or less when patience has run out."""
        now_s = time.monotonic()
        self._ends_s = now_s + self._patience_s if self._ends_s is None else self._ends_s
        return self._ends_s - now_s


class _Closed(Exception):
    """The master ended the connection."""


@dataclass(frozen=True, slots=True)
class _Prefix:
    """The beginning of a stream: its length in bytes and two different checksums of it, 64 bits together.

    They guard against accident and are computed over every byte: with ISA-L both take 0.1 s per GB, SHA-256 0.5 s.
    """

    length: int = 0
    crc: int = 0
    adler: int = 1

    def plus(self, data: bytes) -> _Prefix:
        return _Prefix(self.length + len(data), crc32(data, self.crc), adler32(data, self.adler))


def _behind(known: _Prefix, pieces: Iterable[bytes], master: Address, start: Offset) -> Iterator[bytes]:
    """Yield `pieces` without the `known` prefix. Raises MasterReplaced if they begin differently."""
    found = _Prefix()
    for piece in pieces:
        skipped = piece[: known.length - found.length]
        if skipped:
            found = found.plus(skipped)
            if found.length == known.length and found != known:
                raise _replaced(master, start, known)
        if len(skipped) < len(piece):
            yield piece[len(skipped) :]


def _replaced(master: Address, start: Offset, known: _Prefix) -> MasterReplaced:
    return MasterReplaced(
        f"the master at {master} has another history than before the connection broke; of the old one {known.length} "
        "bytes had been read, of the new one none were taken",
        offset=start,
        expected="the bytes that came before, from this offset on",
        found="others",
        hint="Another master answers at this address, or it lost its tail. What is committed is compared with it next.",
    )


def _read_connection(
    master: Address, start: Offset, options: HAReadOptions, patience: _Patience
) -> Generator[bytes, None, None]:
    """Yield the bytes from `start` on that one connection gives.

    Raises _Closed when it breaks, TimeIsUp when `patience` runs out.
    """
    asked = Offset(max(start, 1))
    sock = connect_slave(
        master, options.dialect, timeout_ms=options.connect_timeout_ms, attempts=options.connect_attempts
    )
    with closing(_Connection(sock, master, asked, options, patience)) as connection:
        if start < asked:
            yield _FIRST_BYTE
        while True:
            yield from connection.next_bodies()


class _Connection:
    """One HA connection that reports `asked`, again and again, and nothing else."""

    def __init__(
        self, sock: socket.socket, master: Address, asked: Offset, options: HAReadOptions, patience: _Patience
    ) -> None:
        self._sock = sock
        self._master = master
        self._asked = asked
        self._silence_timeout_s = options.silence_timeout_ms / 1000
        self._report_interval_s = options.report_interval_ms / 1000
        self._dialect = options.dialect
        self._frames = FrameParser(asked, options.max_frame_bytes, options.dialect.heads())
        self._unconfirmed = _Unconfirmed(asked)
        self._buffer = np.empty(RECEIVE_BYTES, np.uint8).data  # not zeroed: that costs more than a small split
        self._reported_at = float("-inf")
        self._forgotten_after_s = options.forgotten_after_s
        self._has_ended = False
        self._patience = patience

    def close(self) -> None:
        """Close the connection. Raises MasterSilent if its end matters and the master does not confirm it."""
        with self._sock:
            if self._forgotten_after_s is not None and not self._has_ended:
                self._end(self._forgotten_after_s)

    def _end(self, within_s: float) -> None:
        if not say_goodbye(self._sock, within_s=within_s):
            raise MasterSilent(
                f"the master at {self._master} does not close the finished connection",
                offset=self._asked,
                expected=f"its end of the stream within {within_s:g} s",
                found="none",
                hint="It counts connections (inSyncReplicas), so the next one had to wait. See what is in its way.",
            )

    def next_bodies(self) -> list[bytes]:
        """Return at least one body; the log is known to go on. Waits, but not for ever."""
        heartbeats = 0
        heard_at = time.monotonic()
        while self._unconfirmed.size_bytes <= _MOST_UNCONFIRMED_BYTES:
            left_s = heard_at + self._silence_timeout_s - time.monotonic()
            if left_s <= 0:
                break
            frames = self._receive(left_s)
            if frames is None:
                continue
            bodies = self._unconfirmed.released(frames, self._frames.confirmed)
            if bodies:
                return bodies
            if frames and self._patience.left_s() <= 0:
                raise TimeIsUp
            heartbeats += sum(frame.is_heartbeat for frame in frames)
            if self._frames.is_inside_body:
                heard_at = time.monotonic()
        raise self._silence(heartbeats)

    def _receive(self, left_s: float) -> list[Frame] | None:
        """Return the frames that the next bytes complete; None if nothing came and it is time to check the clocks."""
        try:
            self._keep_alive()
            left_s = min(left_s, self._patience.left_s())
            self._sock.settimeout(min(max(left_s, 0.0), self._report_interval_s))
            count = self._sock.recv_into(self._buffer)
        except (TimeoutError, BlockingIOError):
            if self._patience.left_s() <= 0:
                raise TimeIsUp from None
            return None
        except OSError as error:
            self._has_ended = isinstance(error, ENDED)
            raise _Closed(str(error)) from error
        if not count:
            self._has_ended = True
            raise _Closed("end of stream")
        return self._frames.feed(self._buffer[:count])

    def _keep_alive(self) -> None:
        """Send the report at first, and repeat it later. A master closes a connection that is silent for 20 s."""
        now = time.monotonic()
        if now - self._reported_at >= self._report_interval_s:
            self._sock.sendall(self._dialect.report(self._asked))
            self._reported_at = now

    def _silence(self, heartbeats: int) -> MasterSilent:
        waited = f"{self._silence_timeout_s:g} s"
        if self._unconfirmed.size_bytes:
            return MasterSilent(
                f"the master at {self._master} has more, which its replicas in sync have not confirmed",
                offset=self._unconfirmed.start,
                expected=f"a confirm offset above within {waited} and {_MOST_UNCONFIRMED_BYTES} bytes",
                found=f"{self._frames.confirmed}, {self._unconfirmed.size_bytes} bytes behind it",
                hint="A fail-over could take it back, so it is not replicated. Look at the replicas in the sync state "
                "set: mqadmin getSyncStateSet.",
            )
        if heartbeats:
            return MasterSilent(
                f"the master at {self._master} sends only heartbeats, no data",
                offset=self._frames.expected,
                expected=f"data within {waited}",
                found=f"{heartbeats} heartbeats",
                hint="A master does so where it no longer or not yet holds the offset: its segment files may just "
                "have expired, or the HA and the remoting address may belong to two brokers.",
            )
        return MasterSilent(
            f"the master at {self._master} is silent",
            offset=self._frames.expected,
            expected=f"data or a heartbeat within {waited}",
            found="nothing",
            hint="Check that the address is the HA port of the master that remoting is of, and the way to it.",
        )


class _Unconfirmed:
    """Received bytes, from `start` on, that a fail-over may still take back. Plain masters have none."""

    def __init__(self, start: Offset) -> None:
        self.start = start
        self.size_bytes = 0
        self._bodies: deque[bytes] = deque()

    def released(self, frames: Iterable[Frame], confirmed: Offset | None) -> list[bytes]:
        """Add `frames` and return what may be handed over: all bytes below `confirmed`, or all if it is None."""
        for frame in frames:
            if not frame.is_heartbeat:
                self._bodies.append(frame.body)
                self.size_bytes += len(frame.body)
        room = self.size_bytes if confirmed is None else confirmed - self.start
        bodies = []
        while self._bodies and room > 0:
            body = self._bodies.popleft()
            if len(body) > room:
                self._bodies.appendleft(body[room:])
                body = body[:room]
            bodies.append(body)
            room -= len(body)
            self.size_bytes -= len(body)
            self.start = Offset(self.start + len(body))
        return bodies
