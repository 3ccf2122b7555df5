"""HA frames, the wire format between a RocketMQ master and its slaves. Sans-I/O: bytes in, frames and reports out.

Plain mode is the same from 3.x to 5.x (`DefaultHAService`, `HAConnection.WriteSocketService`, `HAClient`). Everything
is big-endian. There is no handshake: the slave's first report is the request to start, and every report is a promise.

Slave to master, a report, 8 bytes, aligned to 8 on the stream:

=====  ============  ==========================================================================
bytes  field         meaning
=====  ============  ==========================================================================
i64    offset        "I hold everything below"; the first report also means "send from here"
=====  ============  ==========================================================================

Master to slave, a transfer frame, 12 bytes and a body:

=====  ============  ==========================================================================
bytes  field         meaning
=====  ============  ==========================================================================
i64    offset        physical offset of the first byte of the body
i32    body size     0 is a heartbeat: `offset` is what the master would send next
n      body          raw bytes of the commit log; not aligned to records
=====  ============  ==========================================================================

Invariant of the slave's side: `frame.offset == start + all body bytes before it`, also for heartbeats.

Brokers that elect their master speak another dialect on the same port, with longer heads: `auto_switch.py`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Protocol

from sources.epochs import Epochs
from sources.errors import LogtwinError, ProtocolViolation
from sources.offsets import Offset

FRAME_HEAD: Final = struct.Struct(
    ">"
    "q"  # offset
    "i"  # body size
)
REPORT: Final = struct.Struct(">q")  # offset

DEFAULT_MAX_FRAME_BYTES: Final = 4 * 1024 * 1024
"""A broker's transfer batch is 32 KiB; a slave of the broker's own kind has room for 4 MiB."""

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Frame:
    """One transfer frame: `body` holds the log's bytes from `offset` on."""

    offset: Offset
    body: bytes

    @property
    def is_heartbeat(self) -> bool:
        return not self.body

    @property
    def end(self) -> Offset:
        """Where the next frame must start."""
        return Offset(self.offset + len(self.body))


def encode_report(offset: Offset) -> bytes:
    return REPORT.pack(offset)


def encode_frame(offset: Offset, body: Buffer = b"") -> bytes:
    """Return a whole frame; without a body it is a heartbeat."""
    return FRAME_HEAD.pack(offset, len(body)) + body


class FrameHeads(Protocol):
    """Reads the heads of one connection's frames."""

    @property
    def size_bytes(self) -> int:
        """The size of each head."""

    @property
    def confirmed(self) -> Offset | None:
        """The offset below which no fail-over takes anything back, by the latest head; None if heads do not say."""

    def read(self, buffer: Buffer, at: int, expected: Offset | None) -> tuple[int, int]:
        """Return offset and body size of the head at `at`, which may be read again. Raises ProtocolViolation."""


class Dialect(Protocol):
    """The language of a master's HA port."""

    def handshake(self) -> bytes:
        """Return what the slave sends before its first report and expects an answer to; b"" for nothing."""

    def heed(self, maximum: Offset, epochs: Epochs) -> None:
        """Take the answer: the end of the master's log, and its epochs. Raises if its history is another one."""

    @property
    def epochs(self) -> Epochs:
        """The epochs of the master that answered last; () if it has none."""

    def report(self, offset: Offset) -> bytes:
        """Return a report as it is sent."""

    def heads(self) -> FrameHeads:
        """Return the reader of heads for a new connection."""


class PlainHeads:
    """The heads of plain mode."""

    size_bytes: Final = FRAME_HEAD.size
    confirmed: Final = None

    def read(self, buffer: Buffer, at: int, expected: Offset | None) -> tuple[int, int]:
        offset, size = FRAME_HEAD.unpack_from(buffer, at)
        return offset, size


class Plain:
    """The `Dialect` of plain mode."""

    epochs: Final[Epochs] = ()

    def handshake(self) -> bytes:
        return b""

    def heed(self, maximum: Offset, epochs: Epochs) -> None:
        """Do nothing: there is no answer."""

    def report(self, offset: Offset) -> bytes:
        return encode_report(offset)

    def heads(self) -> PlainHeads:
        return PlainHeads()


class FrameParser:
    """The slave's side: takes what the socket gave, in pieces of any size, and returns whole frames.

    Each head is checked as soon as its bytes are there, before waiting for its body or making room for it. Raises
    ProtocolViolation, at once and on every later call, on an offset other than the expected one, a negative size and a
    size over `max_frame_bytes`. With `expected` None it takes the first frame's offset, as an empty slave does.
    """

    def __init__(
        self,
        expected: Offset | None,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        heads: FrameHeads | None = None,
    ) -> None:
        self._expected = expected
        self._max_frame_bytes = max_frame_bytes
        self._heads = heads or PlainHeads()
        self._head_bytes = self._heads.size_bytes
        self._pending = bytearray()  # the one incomplete frame, head included
        self._needed_bytes = self._head_bytes  # what `_pending` must hold before it can be looked at
        self._failure: LogtwinError | None = None

    @property
    def expected(self) -> Offset | None:
        """Where the next frame must start; None until the first head has come."""
        return self._expected

    @property
    def is_inside_body(self) -> bool:
        """Whether the rest of a body is still to come."""
        return len(self._pending) > self._head_bytes

    @property
    def confirmed(self) -> Offset | None:
        """`FrameHeads.confirmed` of all heads that have come."""
        return self._heads.confirmed

    def feed(self, data: Buffer) -> list[Frame]:
        """Return the frames that `data` completes. Keeps no reference to `data`; bodies are bytes of their own."""
        if self._failure is not None:
            raise self._failure
        try:
            with memoryview(data) as view:
                frames: list[Frame] = []
                at = self._complete_pending(view, frames)
                at = self._take_whole(view, at, frames)
                self._pending += view[at:]
                return frames
        except ProtocolViolation as violation:
            self._failure = violation
            raise

    def _complete_pending(self, view: memoryview, frames: list[Frame]) -> int:
        """Fill the incomplete frame from the start of `view`; return how many bytes that took."""
        at = 0
        while self._pending and at < len(view):
            taken = view[at : at + self._needed_bytes - len(self._pending)]
            self._pending += taken
            at += len(taken)
            if len(self._pending) == self._needed_bytes:
                self._advance_pending(frames)
        return at

    def _advance_pending(self, frames: list[Frame]) -> None:
        """Handle the pending bytes, which are a head that has just become complete, or a whole frame."""
        if self._needed_bytes == self._head_bytes:
            _, size = self._check_head(self._pending, 0)
            self._needed_bytes += size
        if len(self._pending) == self._needed_bytes:
            offset, _ = self._check_head(self._pending, 0)
            frames.append(self._accept(offset, bytes(memoryview(self._pending)[self._head_bytes :])))
            self._pending = bytearray()
            self._needed_bytes = self._head_bytes

    def _take_whole(self, view: memoryview, at: int, frames: list[Frame]) -> int:
        """Take the frames that lie wholly in `view` directly; return where the first incomplete one starts."""
        while len(view) - at >= self._head_bytes:
            offset, size = self._check_head(view, at)
            end = at + self._head_bytes + size
            if end > len(view):
                self._needed_bytes = self._head_bytes + size
                break
            frames.append(self._accept(offset, bytes(view[at + self._head_bytes : end])))
            at = end
        return at

    def _accept(self, offset: Offset, body: bytes) -> Frame:
        frame = Frame(offset, body)
        self._expected = frame.end
        return frame

    def _check_head(self, buffer: bytearray | memoryview, at: int) -> tuple[Offset, int]:
        offset, size = self._heads.read(buffer, at, self._expected)
        if self._expected is None and offset >= 0:
            self._expected = Offset(offset)
        if offset != self._expected:
            raise ProtocolViolation(
                "the master's frame does not continue the log",
                offset=self._expected,
                expected="an offset of 0 or more" if self._expected is None else f"a frame at {self._expected}",
                found=f"one at {offset}",
                hint="Check that the address is the HA port of the RocketMQ master that remoting is of.",
            )
        if not 0 <= size <= self._max_frame_bytes:
            raise ProtocolViolation(
                "the master's frame has an impossible size",
                offset=offset,
                expected=f"0 to {self._max_frame_bytes} bytes",
                found=f"{size} bytes",
                hint="Check that the address is the HA port of a RocketMQ master, or raise max_frame_bytes.",
            )
        return Offset(offset), size


class ReportParser:
    """The master's side: parses 8-byte reports, in order. A broker heeds only the last report of one read."""

    def __init__(self) -> None:
        self._pending = b""  # fewer than 8 bytes

    def feed(self, data: Buffer) -> list[Offset]:
        """Return every report that `data` completes, as sent. The caller has to judge −1 and other negative ones."""
        joined = self._pending + data
        whole_bytes = len(joined) - len(joined) % REPORT.size
        self._pending = bytes(joined[whole_bytes:])
        return [Offset(offset) for (offset,) in REPORT.iter_unpack(joined[:whole_bytes])]
