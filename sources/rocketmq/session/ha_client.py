"""Reads a master's log over HA for one task: a slave that takes the bytes and promises nothing new.

The first report of a connection is the request "send from here" and at the same time the promise "I hold everything
below". So one connection reports one offset, ever: the start it was asked for, which the caller has committed. The
report is only repeated, so that the master does not take the reader for dead. For the same reason a broken connection
is not resumed at the bytes already received: it asks for the same start again and skips what was handed over.

What is skipped has to be what was handed over. Behind the same address there may be another master by then, or the same
one without the tail that it had not flushed: a stream that went on would be of two histories, and in the middle of a
record. It ends as MasterReplaced instead, which a retry can help: nothing of the new history was taken, and whether
the replica itself is of it is what the proof before the next attempt says (`sinks/batch/continuity.py`).

A master that counts connections instead of slaves must never have two of ours. `forgotten_after_s` is for those: a
connection is known to have ended at the master before another one is made and before the reading is over; or it has
been silent for so long that the master no longer counts it, and the reading fails.

A master in controller mode says with each head below which offset no fail-over takes anything back: what lies above is
kept here until that has moved beyond it.

The first byte of a log cannot be asked for, because a report of 0 means "from the start of the last file". The reader
asks for 1 and puts the byte back: the top byte of the first record's size, 0x00 of any record below 16 MiB. (A larger
one would fail the check of its size, loudly.)
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from isal.isal_zlib import adler32, crc32

from sources.access.address import Address
from sources.errors import MasterReplaced, MasterSilent, MasterUnreachable
from sources.master import TimeIsUp
from sources.offsets import Offset
from sources.rocketmq.session.graceful_close import say_goodbye
from sources.rocketmq.session.ha_connection import connect_slave
from sources.rocketmq.wire.ha import DEFAULT_MAX_FRAME_BYTES, Dialect, Frame, FrameParser, Plain

RECEIVE_BYTES: Final = 1024 * 1024
_FIRST_BYTE: Final = b"\0"
_MOST_UNCONFIRMED_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How long to wait, how often to try, how much to take at once; and how long an end may go unconfirmed."""

    connect_timeout_ms: int = 5000
    connect_attempts: int = 3
    silence_timeout_ms: int = 20_000
    report_interval_ms: int = 5000
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    forgotten_after_s: float | None = None
    patience_s: float | None = None
    dialect: Dialect = field(default_factory=Plain)


def read_stream(master: Address, start: Offset, options: ReadOptions | None = None) -> Generator[bytes, None, None]:
    """The log's bytes from `start` on, in order, as they come, for as long as the caller asks for more.

    The caller asks only for what it knows to be there: waiting longer than `silence_timeout_ms` is an error. A
    connection that the master closes is made anew, until `connect_attempts` connections in a row have brought nothing
    new. (Each has to get beyond what the ones before brought; where none does, that is the end.)

    Raises MasterUnreachable, MasterSilent, MasterReplaced, ProtocolViolation; TimeIsUp where nothing is there to be
    taken, and `patience_s` have passed since the first request.
    """
    options = options or ReadOptions()
    patience = _Patience(options.patience_s)
    delivered = _Prefix()
    fruitless = 0
    while fruitless < options.connect_attempts:
        before = delivered
        time.sleep(_wait_s(fruitless))
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
    """Runs from when it is first asked. A process that is busy with others' bytes has not waited for the master."""

    def __init__(self, patience_s: float | None) -> None:
        self._patience_s = float("inf") if patience_s is None else patience_s
        self._ends_s: float | None = None

    def left_s(self) -> float:
        """At most 0 where it is at its end."""
        now_s = time.monotonic()
        self._ends_s = now_s + self._patience_s if self._ends_s is None else self._ends_s
        return self._ends_s - now_s


class _Closed(Exception):
    """The master ended the connection."""


def _wait_s(fruitless: int) -> float:
    return min(0.05 * 2**fruitless, 2.0) if fruitless else 0.0


@dataclass(frozen=True, slots=True)
class _Prefix:
    """What a stream began with: its length in bytes, and two checksums of them, of different algebra, 64 bits together.

    They are there against accident, on the way of every byte: with ISA-L both take 0.1 s a GB, SHA-256 0.5 s.
    """

    length: int = 0
    crc: int = 0
    adler: int = 1

    def plus(self, data: bytes) -> _Prefix:
        return _Prefix(self.length + len(data), crc32(data, self.crc), adler32(data, self.adler))


def _behind(known: _Prefix, pieces: Iterable[bytes], master: Address, start: Offset) -> Iterator[bytes]:
    """`pieces` without the prefix that is `known`. Raises MasterReplaced where they begin with another one."""
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
    master: Address, start: Offset, options: ReadOptions, patience: _Patience
) -> Generator[bytes, None, None]:
    """The bytes from `start` on that one connection gives.

    Until it breaks (_Closed), or there is no more `patience` (TimeIsUp).
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
        self, sock: socket.socket, master: Address, asked: Offset, options: ReadOptions, patience: _Patience
    ) -> None:
        self._sock = sock
        self._master = master
        self._asked = asked
        self._silence_timeout_s = options.silence_timeout_ms / 1000
        self._report_interval_s = options.report_interval_ms / 1000
        self._dialect = options.dialect
        self._frames = FrameParser(asked, options.max_frame_bytes, options.dialect.heads())
        self._unconfirmed = _Unconfirmed(asked)
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._reported_at = float("-inf")
        self._forgotten_after_s = options.forgotten_after_s
        self._has_ended = False
        self._patience = patience

    def close(self) -> None:
        """Raises MasterSilent where the end matters and the master does not confirm it."""
        with self._sock:
            if self._forgotten_after_s is not None and not self._has_ended:
                self._end(self._forgotten_after_s)

    def _end(self, within_s: float) -> None:
        if not say_goodbye(self._sock, within_s=within_s):
            raise MasterSilent(
                f"the master at {self._master} does not end the connection that is done with",
                offset=self._asked,
                expected=f"its end of the stream within {within_s:g} s",
                found="none",
                hint="It counts connections (inSyncReplicas), so the next one had to wait. See what is in its way.",
            )

    def next_bodies(self) -> list[bytes]:
        """One body or more, of a log that is known to go on; waits for them, but not for ever."""
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
            heartbeats += sum(frame.is_heartbeat for frame in frames)
            if self._frames.is_inside_body:
                heard_at = time.monotonic()
        raise self._silence(heartbeats)

    def _receive(self, left_s: float) -> list[Frame] | None:
        """The frames that the next bytes complete; None where nothing came and it is time to look at the clocks."""
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
            self._has_ended = isinstance(error, ConnectionResetError)
            raise _Closed(str(error)) from error
        if not count:
            self._has_ended = True
            raise _Closed("end of stream")
        return self._frames.feed(self._buffer[:count])

    def _keep_alive(self) -> None:
        """Ask at first, repeat it later. A master closes what it has not heard from for 20 s."""
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
                f"the master at {self._master} sends heartbeats and no data",
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
    """Bytes that have come, from `start` on, and that a fail-over may take back. Of plain masters there are none."""

    def __init__(self, start: Offset) -> None:
        self.start = start
        self.size_bytes = 0
        self._bodies: deque[bytes] = deque()

    def released(self, frames: Iterable[Frame], confirmed: Offset | None) -> list[bytes]:
        """What may be handed over of these and of what is kept: all below `confirmed`; without it all."""
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
