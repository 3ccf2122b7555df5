"""Find the messages of one record at which workers die: an inner batch has many. Pure.

Some of the messages are read, and no others: if a worker dies, half of these are read, and so on. Nothing of it is
committed, because a table's position does not part the messages of a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MOST_TRIES: Final = 64
"""How often a part is read, at most: what is not known to be sound by then is not read at all."""

Indexes = tuple[int, int]
"""From an index in the inner batch up to another."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A record of which only the messages in `read` are read; the others are dead letters, which say `found`."""

    log_id: str
    offset: int
    read: tuple[Indexes, ...]
    found: str


class InnerBatch:
    """The messages of a record with `count` messages, among which there are some that must not be read."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._bad: list[Indexes] = []
        self._left: list[Indexes] = [(0, count)]
        self._tries = 0
        self.died()

    @property
    def is_trying(self) -> bool:
        """Whether `read` is a try."""
        return bool(self._left)

    @property
    def read(self) -> tuple[Indexes, ...]:
        """The messages to read: those of a try, or else all that are known to be sound."""
        return (self._left[-1],) if self._left else tuple(self._sound())

    def lived(self) -> None:
        """No worker died in the try."""
        self._left.pop()
        self._count_try()

    def died(self) -> bool:
        """A worker died in the try. Returns False if it was none, and there is nothing that could be left out."""
        if not self._left:
            was, self._bad = self._bad, [(0, self._count)]
            return was != self._bad
        start, end = self._left.pop()
        if end - start == 1:
            self._bad.append((start, end))
        else:
            self._left += [((start + end) // 2, end), (start, (start + end) // 2)]
        self._count_try()
        return True

    def _count_try(self) -> None:
        self._tries += 1
        if self._tries > MOST_TRIES:
            self._bad += self._left
            self._left = []

    def _sound(self) -> Iterator[Indexes]:
        start = 0
        for bad_start, bad_end in sorted(self._bad):
            if start < bad_start:
                yield start, bad_start
            start = bad_end
        if start < self._count:
            yield start, self._count
