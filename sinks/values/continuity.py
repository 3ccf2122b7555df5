"""Check that the master's next bytes continue the replica, by the checksum of the last committed record. Pure.

A rewritten log may have a record boundary at the very position, so joining offsets prove nothing. The bytes do: before
anything is acknowledged, or read from the position on, the record before the position is compared. A reader does that
on the connection that brings the batch, so nothing can change in between.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sources.errors import CorruptRecord, LogtwinError, Rewritten
from sources.loss import Condition
from sources.master import Chunk, Damage
from sources.offsets import Offset, OffsetRange

Lengths = Callable[[pa.RecordBatch], npt.NDArray[np.int64]]


def checksum_of(raw: bytes | memoryview) -> str:
    return written(hashlib.sha256(raw))


def written(digest: hashlib._Hash) -> str:
    """A SHA-256 `digest`, as the ledger writes it: ``sha256:`` and the hex digest."""
    return f"sha256:{digest.hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The last record below the position: its range ``[start, end)``, and the checksum of its bytes."""

    start: Offset
    end: Offset
    checksum: str

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.start, self.end)

    @classmethod
    def of(cls, covered: OffsetRange, raw: bytes | memoryview) -> Link:
        return cls(start=covered.start, end=covered.end, checksum=checksum_of(raw))

    def check(self, raw: bytes | memoryview) -> None:
        """Raises Rewritten, which names no log, unless `raw` is what was committed as this record."""
        found = checksum_of(raw)
        if found != self.checksum:
            raise self.broken(found)

    def broken(self, found: object) -> Rewritten:
        """The error that says that the master has not this record there, but what was `found`."""
        return Rewritten(
            "the master has another record before the position than the one that was replicated",
            offset=self.start,
            expected=f"{self.range} with {self.checksum}",
            found=found,
            hint=Condition.REWRITTEN.hint,
        )


def behind(link: Link, first: Chunk | Damage, lengths: Lengths) -> Chunk:
    """The rest, maybe none, of the first piece of what is read from the link's record on, without that record.

    `lengths` is the master's (`MasterLog.lengths`). Raises Rewritten if the piece does not begin with that record.
    """
    if isinstance(first, Damage):
        raise no_record(link, first.error)
    length = int(lengths(first.records.slice(0, 1))[0])
    link.check(first.raw[:length])
    rest = OffsetRange(link.end, first.covered.end)
    return Chunk(rest, first.records.slice(1), first.raw[length:], first.mark, first.epochs)


def nothing_of(link: Link, error: Exception | None) -> Exception:
    """Why nothing came of what was read from the link's record on: that is not sound, or not there, or `error`."""
    if error is None:
        return link.broken("nothing")
    if isinstance(error, CorruptRecord) and error.offset is not None and error.offset < link.end:
        return no_record(link, error)
    return error


def no_record(link: Link, error: LogtwinError) -> Rewritten:
    """The error that says that the master has no sound record there."""
    return link.broken(f"no sound record: {error.problem}")
