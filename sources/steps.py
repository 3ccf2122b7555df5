"""Work that waits for answers in steps, so that one thread can wait for many answers at once.

Such work is a generator: it yields what it waits for, goes on when that has come, and never waits by itself.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")


class Socket(Protocol):
    """The part of a socket that is needed to wait for it."""

    def fileno(self) -> int: ...

    def settimeout(self, value: float | None, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Awaited:
    """Bytes that are to come from `sock` until `until_s` of `time.monotonic`."""

    sock: Socket
    until_s: float


Steps = Generator[Awaited, None, T]
"""Work that returns a value. If the awaited bytes do not come in time, TimeoutError is thrown into it."""
