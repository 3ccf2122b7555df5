"""UNIQ_KEY, the id that a client, or a 5.x broker on its behalf, gives to a message.

It is the upper-case hex of (`MessageClientIDSetter`; integers big-endian):

========  ===============================================================================
bytes     field
========  ===============================================================================
4 or 16   IP address of the maker
u16       low 16 bits of the process id
i32       hash of Java's class loader; here a random number that tells makers in one process apart
u32       ms since the start of the month, UTC
u16       counter
========  ===============================================================================
"""

from __future__ import annotations

import itertools
import os
import secrets
import struct
import time
from datetime import UTC, datetime
from typing import Final

_TIME_AND_COUNT: Final = struct.Struct(
    ">"
    "I"  # ms since the start of the month
    "H"  # counter
)


class UniqueKeys:
    """Makes unique keys: one at each `next`, without end."""

    def __init__(self, ip: bytes) -> None:
        """`ip` is 4 or 16 bytes."""
        self._prefix = ip + struct.pack(">H4s", os.getpid() & 0xFFFF, secrets.token_bytes(4))
        self._counter = itertools.count()
        self._month_start_ms = self._next_month_ms = 0

    def __next__(self) -> str:
        now_ms = time.time_ns() // 1_000_000
        if not self._month_start_ms <= now_ms < self._next_month_ms:
            self._month_start_ms, self._next_month_ms = _month_around(now_ms)
        count = next(self._counter) & 0xFFFF
        return (self._prefix + _TIME_AND_COUNT.pack(now_ms - self._month_start_ms, count)).hex().upper()


def _month_around(now_ms: int) -> tuple[int, int]:
    """Return the start of the month and of the next one, in ms."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    start = datetime(now.year, now.month, 1, tzinfo=UTC)
    following = datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
    return int(start.timestamp() * 1000), int(following.timestamp() * 1000)
