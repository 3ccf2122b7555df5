"""Does what comes next continue what is there? The last committed record, known by its checksum. Pure.

A master whose log was rewritten may have a record boundary at the very position, so that joining offsets prove nothing.
Its bytes do: whoever is about to promise something to a master, or to read what follows the position, looks at the
record before it first. A reader does that on the connection that brings the batch, so that nothing can change in
between.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sources.errors import CorruptRecord, Rewritten
from sources.loss import Condition
from sources.master import Chunk, Damage
from sources.offsets import Offset, OffsetRange

Lengths = Callable[[pa.RecordBatch], npt.NDArray[np.int64]]


def checksum_of(raw: bytes | memoryview) -> str:
    """The checksum of bytes that are all there, as the ledger writes it."""
    return written(hashlib.sha256(raw))


def written(digest: hashlib._Hash) -> str:
    """A SHA-256 of bytes that passed by, as the ledger writes it: ``sha256:`` and the hex digest."""
    return f"sha256:{digest.hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The last record below the position: ``[start, end)``, and the checksum of the master's bytes of it."""

    start: Offset
    end: Offset
    checksum: str

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.start, self.end)

    @classmethod
    def of(cls, covered: OffsetRange, raw: bytes | memoryview) -> Link:
        return cls(start=covered.start, end=covered.end, checksum=checksum_of(raw))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Link:
        return cls(start=values["start"], end=values["end"], checksum=values["checksum"])

    def check(self, raw: bytes | memoryview) -> None:
        """Raises Rewritten, which knows no log, unless `raw` is what was committed as this record."""
        found = checksum_of(raw)
        if found != self.checksum:
            raise self.broken(found)

    def broken(self, found: object) -> Rewritten:
        """That the master has not this record there, but what was `found`."""
        return Rewritten(
            "the master has another record before the position than the one that was replicated",
            offset=self.start,
            expected=f"{self.range} with {self.checksum}",
            found=found,
            hint=Condition.REWRITTEN.hint,
        )


def first_behind(link: Link, pieces: Iterator[Chunk | Damage], lengths: Lengths) -> Chunk | None:
    """What the first of `pieces`, read from the link's record on, holds behind that record; it may be an empty one.
    None where there are no pieces.

    `lengths` is the master's (`MasterLog.lengths`).
    Raises Rewritten where they do not begin with that record, and what reading them raises.
    """
    try:
        first = next(pieces, None)
    except CorruptRecord as error:
        if error.offset is None or error.offset >= link.end:
            raise
        raise link.broken(f"no sound record: {error.problem}") from error
    if first is None:
        return None
    if isinstance(first, Damage):
        raise link.broken(f"no sound record: {first.error.problem}")
    length = int(lengths(first.records.slice(0, 1))[0])
    link.check(first.raw[:length])
    behind = OffsetRange(link.end, first.covered.end)
    return Chunk(behind, first.records.slice(1), first.raw[length:], first.mark, first.epochs)
