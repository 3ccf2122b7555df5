"""HA frames of RocketMQ 5 in controller mode, between an elected master and its slaves. Sans-I/O.

Brokers of 5.1.1 and later speak this at the HA port with ``enableControllerMode=true`` (`AutoSwitchHAConnection`,
`AutoSwitchHAClient`; checked against 5.5.0); 5.0.0 to 5.1.0 have another handshake. Integers are big-endian.

The slave sends first a handshake, then reports as in plain mode (`ha.py`), whose first one requests the start:

=====  =====================  =================================================================
bytes  field                  meaning
=====  =====================  =================================================================
i32    state                  1
i16    from the last file     1: an empty slave wants the last file only
i16    asynchronous learner   1: never in sync, so never elected
i64    slave's broker id      its number at the controller
=====  =====================  =================================================================

=====  ======  ==============================
bytes  field   meaning
=====  ======  ==============================
i32    state   2
i64    offset  as a report of plain mode
=====  ======  ==============================

The master first answers the handshake, with the epochs that it knows, oldest first:

======  ===============  ======================================================
bytes   field            meaning
======  ===============  ======================================================
i32     state            1
i32     body size        12 times the number of epochs
i64     maximum          where its log ends
i32     last epoch       number of the newest epoch
12 × n  epochs           i32 number, i64 offset at which its first record starts
======  ===============  ======================================================

Then frames:

=====  ===============  =================================================================================
bytes  field            meaning
=====  ===============  =================================================================================
i32    state            2
i32    body size        0 is a heartbeat; −1 if the master lists no epoch that begins at or below the offset
i64    offset           of the first byte of the body; −1 in heartbeats while the master has nothing to send
i32    epoch            of the body
i64    epoch's start    where that epoch starts; it may lie above the offset
i64    confirm offset   every replica in sync has all below; a fail-over may take back everything above
n      body             raw bytes of the commit log
=====  ===============  =================================================================================
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sources.epochs import Epoch, Epochs, parting
from sources.errors import ProtocolViolation
from sources.master import NOTHING_KNOWN, Known
from sources.offsets import Offset
from sources.rocketmq.wire.ha import Buffer

HANDSHAKE: Final = struct.Struct(
    ">"
    "i"  # state
    "h"  # from the last file
    "h"  # asynchronous learner
    "q"  # slave's broker id
)
REPORT: Final = struct.Struct(
    ">"
    "i"  # state
    "q"  # offset
)
ANSWER_HEAD: Final = struct.Struct(
    ">"
    "i"  # state
    "i"  # body size
    "q"  # maximum
    "i"  # last epoch
)
EPOCH: Final = struct.Struct(
    ">"
    "i"  # number
    "q"  # start
)
FRAME_HEAD: Final = struct.Struct(
    ">"
    "i"  # state
    "i"  # body size
    "q"  # offset
    "i"  # epoch
    "q"  # epoch's start
    "q"  # confirm offset
)
IN_HANDSHAKE: Final = 1
IN_TRANSFER: Final = 2
NOTHING_TO_SEND: Final = -1
WITHOUT_EPOCH: Final = -1

_NOBODYS_ID: Final = -1
"""Controllers count from 1. Under the id of a replica in sync, our reports would count as that replica's."""
_MOST_EPOCHS: Final = 100_000  # a broker keeps a thousand
_HINT: Final = "Check that the address is the HA port of a RocketMQ master of 5.1.1 or later in controller mode."


@dataclass(frozen=True, slots=True)
class HandshakeAnswer:
    """A master's answer to a handshake: where its log ends, and its epochs, oldest first."""

    maximum: Offset
    epochs: Epochs


class AnswerParser:
    """The slave's side of the handshake: takes the bytes that it `wants`, in pieces of any size."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._body = bytearray()
        self._body_bytes = 0

    @property
    def wants(self) -> int:
        """How many more bytes are certainly part of the answer; 0 once it is complete."""
        return ANSWER_HEAD.size - len(self._head) or self._body_bytes - len(self._body)

    def feed(self, data: bytes) -> HandshakeAnswer | None:
        """Return the answer when its last byte comes. Give at most `wants` bytes. Raises ProtocolViolation."""
        if len(self._head) < ANSWER_HEAD.size:
            self._head += data
            if len(self._head) == ANSWER_HEAD.size:
                self._body_bytes = self._checked_head()
        else:
            self._body += data
        return self._answer() if self.wants == 0 else None

    def _checked_head(self) -> int:
        state, size, maximum, _ = ANSWER_HEAD.unpack(self._head)
        if state != IN_HANDSHAKE:
            raise _violation("the master does not answer the handshake", f"state {IN_HANDSHAKE}", f"state {state}")
        if size % EPOCH.size or not 0 <= size <= _MOST_EPOCHS * EPOCH.size:
            expected = f"0 to {_MOST_EPOCHS} times {EPOCH.size} bytes"
            raise _violation("the master's list of epochs has an impossible size", expected, f"{size} bytes")
        if maximum < 0:
            raise _violation("the master's log ends before it starts", "a maximum of 0 or more", maximum)
        return int(size)

    def _answer(self) -> HandshakeAnswer:
        _, _, maximum, last = ANSWER_HEAD.unpack(self._head)
        epochs = tuple(Epoch(number, Offset(start)) for number, start in EPOCH.iter_unpack(self._body))
        for before, after in pairwise(epochs):
            if not (before.number < after.number and before.start <= after.start):
                raise _violation("the master's epochs contradict each other", f"an epoch after {before}", after)
        if epochs and (epochs[-1].number != last or epochs[0].start < 0):
            expected = f"epochs from offset 0 or more on, up to number {last}"
            raise _violation("the master's epochs contradict each other", expected, f"{epochs[0]} to {epochs[-1]}")
        return HandshakeAnswer(Offset(maximum), epochs)


class TransferHeads:
    """Reads the heads of one connection's frames; `confirmed` is what the latest said of all replicas."""

    size_bytes: Final = FRAME_HEAD.size

    def __init__(self, *, beyond_confirm: bool = False) -> None:
        self.confirmed: Offset | None = None if beyond_confirm else Offset(0)
        self._epoch = 0

    def read(self, buffer: Buffer, at: int, expected: Offset | None) -> tuple[int, int]:
        """Return offset and body size of the head at `at`; for a heartbeat without an offset, the `expected` one.

        The same head may be read again. Raises ProtocolViolation.
        """
        state, size, offset, number, _, confirmed = FRAME_HEAD.unpack_from(buffer, at)
        if state != IN_TRANSFER:
            raise _violation("the master's frame is none", f"state {IN_TRANSFER}", f"state {state}", expected)
        if size == WITHOUT_EPOCH:
            raise ProtocolViolation(
                "the master knows no epoch of this offset, and sends nothing of it",
                offset=expected,
                expected="an epoch that begins at or below it",
                found=f"a frame of {size} bytes",
                hint="Its epochFileCheckpoint was lost: bring it back from another replica, and restart the broker.",
            )
        if size == 0 and offset == NOTHING_TO_SEND:
            offset = offset if expected is None else expected
        elif size > 0:
            self._check_epoch(number, expected)
        if self.confirmed is not None:
            self.confirmed = Offset(max(confirmed, 0))
        return offset, size

    def _check_epoch(self, number: int, offset: Offset | None) -> None:
        """Check the epoch, but not its start: a newly elected 5.5.0 master also names its own epoch for older bytes."""
        if number < self._epoch:
            expected = f"epoch {self._epoch} or a later one"
            raise _violation("the master's frames go back to an earlier epoch", expected, number, offset)
        self._epoch = number


class AutoSwitch:
    """The `sources.rocketmq.wire.ha.Dialect` of controller mode.

    A master whose epochs below the known offset differ from the `known` ones is refused when it answers the handshake.
    `epochs` are those of the master that answered last, and `maximum` is where its log ended. With `beyond_confirm`,
    heads are read as if everything were confirmed.
    """

    def __init__(self, known: Known = NOTHING_KNOWN, *, beyond_confirm: bool = False) -> None:
        self._known = known
        self._beyond_confirm = beyond_confirm
        self.maximum = Offset(0)
        self.epochs: Epochs = ()

    def handshake(self) -> bytes:
        """Return the handshake of an asynchronous learner that wants the log from the start it will ask for."""
        return HANDSHAKE.pack(IN_HANDSHAKE, 0, 1, _NOBODYS_ID)

    def report(self, offset: Offset) -> bytes:
        return REPORT.pack(IN_TRANSFER, offset)

    def heed(self, maximum: Offset, epochs: Epochs) -> None:
        """Keep the answer. Raises FailedOver, EpochsContradict."""
        known = self._known
        if (parted := parting(known.epochs, known.offset or Offset(0), epochs, maximum)) is not None:
            raise parted.error()
        self.maximum, self.epochs = maximum, epochs

    def heads(self) -> TransferHeads:
        return TransferHeads(beyond_confirm=self._beyond_confirm)


def _violation(problem: str, expected: object, found: object, offset: int | None = None) -> ProtocolViolation:
    return ProtocolViolation(
        problem, offset=None if offset is None else Offset(offset), expected=expected, found=found, hint=_HINT
    )
