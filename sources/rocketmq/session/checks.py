"""What a session checks on one connection: that the master holds what is promised, and starts where it was asked to.

A session needs nothing of what the master streams, and takes no byte of the log. But heads come before the log: the
heartbeats and the first head with data show how the master understood our reports. A head with another offset means
that this is no plain master, or not the one that the promise is for.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from sources.errors import AboveMaximum, MasterSilent
from sources.offsets import Offset
from sources.rocketmq.wire.ha import Dialect, FrameParser


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
