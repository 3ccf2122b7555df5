"""Work that waits for answers in steps, so that one thread can wait for many answers at once.

Such work is a generator. It says what it waits for, and goes on when that is there; it waits for nothing in between.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")


class Socket(Protocol):
    """What of a socket is needed to wait for it."""

    def fileno(self) -> int: ...

    def settimeout(self, value: float | None, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Awaited:
    """Bytes that are to come from `sock` until `until_s` of `time.monotonic`."""

    sock: Socket
    until_s: float


Steps = Generator[Awaited, None, T]
"""Work that returns a value. At what does not come in time, TimeoutError is thrown into it."""
