"""One connection to a master's HA port: how it is opened, what is checked on it, how it ends.

Whoever connects goes through the handshake, if the master's dialect has one. A session checks more: that the master
holds what is promised to it (`Promise`), and that it starts where it was asked to (`FirstHeads`). A session needs
nothing of what the master streams, and takes no byte of the log. But heads come before the log: the heartbeats and the
first head with data show how the master understood our reports. A head with another offset means that this is no plain
master, or not the one that the promise is for.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sources.access.address import Address
from sources.epochs import Epochs
from sources.errors import AboveMaximum, MasterSilent, MasterUnreachable
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.wire.auto_switch import AnswerParser, AutoSwitch, HandshakeAnswer
from sources.rocketmq.wire.connection import connect
from sources.rocketmq.wire.ha import Dialect, FrameParser

DRAIN_BYTES: Final = 1024 * 1024
ENDED: Final = (ConnectionResetError, BrokenPipeError)
"""What a socket raises once the master has reset the connection; broken, if it had ended its half before."""


def connect_slave(
    master: Address, dialect: Dialect, *, timeout_ms: int, attempts: int = 1, receive_buffer_bytes: int | None = None
) -> socket.socket:
    """Return a connection that is ready for its first report. The handshake may take another `timeout_ms`.

    `dialect` takes the answer. Raises MasterUnreachable, MasterSilent, ProtocolViolation, and what `dialect.heed`
    raises.
    """
    sock = connect(master, timeout_ms=timeout_ms, attempts=attempts, receive_buffer_bytes=receive_buffer_bytes)
    if handshake := dialect.handshake():
        try:
            answer = _shake_hands(sock, handshake, master, timeout_ms / 1000)
            dialect.heed(answer.maximum, _naming(answer.epochs, master))
        except BaseException:
            sock.close()
            raise
    return sock


def confirmed_end(master: Address, held: OffsetRange, *, timeout_ms: int, dialect: AutoSwitch | None = None) -> Offset:
    """Return the confirm offset of a master in controller mode that holds `held`, limited to that range.

    It comes with the first frame, so the last byte is requested. That promises nothing, because a learner is not waited
    for. Raises as `connect_slave`.
    """
    if held.is_empty:
        return held.end
    dialect = dialect or AutoSwitch()
    heads = dialect.heads()
    asked = Offset(max(held.end - 1, 1))
    with connect_slave(master, dialect, timeout_ms=timeout_ms) as sock:
        deadline_s = time.monotonic() + timeout_ms / 1000
        parser = FrameParser(asked, heads=heads)
        try:
            sock.sendall(dialect.report(asked))
            left = heads.size_bytes
            while left:
                data = _received(sock, left, master, deadline_s)
                parser.feed(data)
                left -= len(data)
        except OSError as error:
            raise _closed(master, error) from error
    return Offset(min(max(heads.confirmed or 0, held.start), held.end))


def epochs_of(master: Address, *, timeout_ms: int) -> tuple[Offset, Epochs]:
    """Return the end of the log of a master in controller mode, and its epochs. Raises as `connect_slave`."""
    dialect = AutoSwitch()
    connect_slave(master, dialect, timeout_ms=timeout_ms).close()
    return dialect.maximum, dialect.epochs


def _naming(epochs: Epochs, master: Address) -> Epochs:
    """Name the master in the last epoch, which is that of the master who lists them."""
    return (*epochs[:-1], *(replace(epoch, master=str(master)) for epoch in epochs[-1:]))


def _shake_hands(sock: socket.socket, handshake: bytes, master: Address, timeout_s: float) -> HandshakeAnswer:
    deadline_s = time.monotonic() + timeout_s
    parser = AnswerParser()
    try:
        sock.sendall(handshake)
        while (answer := parser.feed(_received(sock, parser.wants, master, deadline_s))) is None:
            pass
    except OSError as error:
        raise _closed(master, error) from error
    return answer


def _received(sock: socket.socket, most_bytes: int, master: Address, deadline_s: float) -> bytes:
    try:
        sock.settimeout(max(deadline_s - time.monotonic(), 0.001))
        data = sock.recv(most_bytes)
    except TimeoutError as error:
        raise MasterSilent(
            f"the master at {master} says nothing in time",
            expected="an answer to the handshake of controller mode, and then to the first report",
            found="none",
            hint="Check that the address is the HA port of a master of 5.1.1 or later in controller mode.",
        ) from error
    if not data:
        raise ConnectionResetError("end of stream")
    return data


def _closed(master: Address, cause: OSError) -> MasterUnreachable:
    return MasterUnreachable(
        f"the master at {master} closed the connection before its first frame",
        found=cause,
        hint="The master's log says why it closes.",
    )


def say_goodbye(sock: socket.socket, *, within_s: float) -> bool:
    """End our half of the stream and read what is still coming; return whether the master has ended its half.

    A broker takes a connection off its list before it closes the socket (`DefaultHAConnection`, both services), so a
    connection that has ended or was reset is no longer counted. Closing with unread bytes would reset the connection at
    once, perhaps before the master has read the last report.
    """
    deadline = time.monotonic() + within_s
    try:
        sock.shutdown(socket.SHUT_WR)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, DRAIN_BYTES)  # a session's is tiny
        while (left_s := deadline - time.monotonic()) > 0:
            sock.settimeout(left_s)
            if not sock.recv(DRAIN_BYTES):
                return True
    except ENDED:
        return True
    except OSError:  # out of time, or out of reach
        return False
    return False


class Promise:
    """Guards one connection against promising a master more than it holds.

    It checks the first report of a connection, and the first report that differs from it: those bytes may have been
    read before the connection broke, from the master as it was then. Everything acknowledged later was read after that,
    from the master as it is now, because a job reads a batch after it has acknowledged the one before.
    """

    def __init__(self, maximum: Callable[[], Offset]) -> None:
        self._maximum = maximum
        self._unchecked = 2
        self._last: Offset | None = None

    def is_new(self, offset: Offset) -> bool:
        return offset != self._last

    def checked(self, offset: Offset) -> Offset:
        """Return `offset`. Raises AboveMaximum, or what asking the master raises."""
        if self.is_new(offset) and self._unchecked:
            self._check(offset)
            self._unchecked -= 1
        self._last = offset
        return offset

    def _check(self, offset: Offset) -> None:
        maximum = self._maximum()
        if offset > maximum:
            raise AboveMaximum(
                "the master's log ends below what the replica has committed; nothing is acknowledged to it",
                offset=offset,
                expected=f"a log that ends at {offset} or above",
                found=f"one that ends at {maximum}",
                hint="The master lost its tail or is another one: compare its log with the replica before going on.",
            )


class FirstHeads:
    """Reads and checks heads, one at a time, until the first one with data; never begins to read a body.

    If several reports come at once, a broker heeds only the last. So the stream may start at any offset that was
    reported before its first head came. Call `take` when there is something to read; it never waits then.
    """

    def __init__(
        self, sock: socket.socket, dialect: Dialect, *, silence_timeout_s: float, max_frame_bytes: int
    ) -> None:
        self._sock = sock
        self._heads = dialect.heads()
        self._silence_timeout_s = silence_timeout_s
        self._max_frame_bytes = max_frame_bytes
        self._reported: list[Offset] = []
        self._parser: FrameParser | None = None
        self._head = b""
        self._heard_at = time.monotonic()
        self.are_over = False

    def reported(self, offset: Offset) -> None:
        """Note that this offset has been reported."""
        if self._parser is None and offset not in self._reported:
            self._reported.append(offset)

    def take(self) -> bool:
        """Read what has come of a head. Return whether it is whole, and right. Raises ProtocolViolation,
        ConnectionResetError, OSError."""
        data = self._sock.recv(self._heads.size_bytes - len(self._head))
        if not data:
            raise ConnectionResetError("the master closed the connection")
        self._heard_at = time.monotonic()
        self._head += data
        if len(self._head) < self._heads.size_bytes:
            return False
        self._check(self._head)
        self._head = b""
        return True

    def check_silence(self) -> None:
        """Raise MasterSilent if no head has come in time. After the first head with data this is not checked."""
        if not self.are_over and time.monotonic() - self._heard_at > self._silence_timeout_s:
            raise MasterSilent(
                "the master does not answer reports",
                offset=self._reported[-1] if self._reported else None,
                expected=f"a heartbeat within {self._silence_timeout_s:g} s",
                found="nothing",
                hint="Check that the address is the HA port of the master that remoting is of.",
            )

    def _check(self, head: bytes) -> None:
        if self._parser is None:
            start, _ = self._heads.read(head, 0, self._reported[-1])
            expected = Offset(start) if start in self._reported else self._reported[0]
            self._parser = FrameParser(expected, self._max_frame_bytes, self._heads)
        heartbeats = self._parser.feed(head)
        self.are_over = not heartbeats
