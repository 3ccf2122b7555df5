"""The holes of a log: ranges below its position that are not in the table. Pure.

They are in the log table's domain metadata. ``logtwin.holes.<log id>`` is rewritten only by a commit that makes a hole
(a recorded loss, retention, a repair) or fills one (a backfill). The stream's commits leave it alone, so a backfill and
the stream do not conflict. If two backfills fill one hole, Kernel refuses the second: every byte comes in once.

Ranges that a repair took out as damaged, even the repair of another log that had rows in the same file, stay in
`taken_out` until they are filled: no row of the ledger may claim them (`sinks/healing/hole_filler.py`).

A hole at offset 0 lies before the replica's beginning: it is not a loss, and a backfill may fill it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from pydantic import Field, PlainSerializer, PlainValidator

from sinks.state.stored_json import StoredJson
from sinks.values.ledger_row import LedgerRow
from sources.offsets import LogId, Offset, OffsetRange

HOLES_DOMAIN: Final = "logtwin.holes."


def numbers_of(ranges: Sequence[OffsetRange]) -> list[list[int]]:
    return [[one.start, one.end] for one in ranges]


def ranges_of(numbers: Iterable[Sequence[Any]]) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(start, end) for start, end in numbers)


_Ranges = Annotated[tuple[OffsetRange, ...], PlainSerializer(numbers_of), PlainValidator(ranges_of)]


@dataclass(frozen=True, slots=True)
class TakenOut:
    """Ranges of one log, in its history `epoch`, that a repair turns into holes: whole rows of the ledger."""

    log_id: Annotated[LogId, Field(alias="log"), PlainSerializer(str), PlainValidator(LogId.parse)]
    epoch: int
    ranges: _Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Holes:
    """The holes of one log: `ranges` in order, apart from each other, none empty.

    `fills` counts the fills; `ledger` has the rows of the newest one. `taken_out` are the parts of the ranges that a
    repair took out as damaged. `commit` is a random id, by which the writer of a commit recognizes it.
    """

    ranges: _Ranges = ()
    fills: int = 0
    commit: str = ""
    ledger: tuple[LedgerRow, ...] = ()
    taken_out: _Ranges = ()

    @classmethod
    def before(cls, first: Offset) -> Holes:
        """The holes of a replica that begins at `first`."""
        return cls(ranges=joined([OffsetRange(Offset(0), first)]))

    def as_json(self) -> str:
        return _STORED.text_of(self)

    @classmethod
    def from_json(cls, text: str) -> Holes:
        """The inverse of `as_json`. Raises TypeError or ValueError for what it did not write."""
        return _STORED.read(text)

    def with_lost(self, lost: Iterable[OffsetRange]) -> Holes:
        """The holes after a commit that passed over `lost`, or took it out."""
        return self._changed(joined([*self.ranges, *lost]))

    def with_taken_out(self, out: Sequence[OffsetRange]) -> Holes:
        """The holes after a repair that took `out` out: the ledger has yet to follow."""
        return replace(self.with_lost(out), taken_out=joined([*self.taken_out, *out]))

    def filled(self, ranges: Sequence[OffsetRange], ledger: Sequence[LedgerRow]) -> Holes:
        """The holes after a commit that fills `ranges`. Raises ValueError if one of them does not lie in a hole."""
        left = self.ranges
        for filled in ranges:
            left = _without(left, filled)
        return replace(self._changed(left), fills=self.fills + 1, ledger=tuple(ledger))

    def below(self, position: Offset) -> Holes:
        """The holes after a repair that went back to `position`: nothing above it is missing, or owed to the ledger."""
        return replace(
            self._changed(cut(self.ranges, position)), ledger=tuple(row for row in self.ledger if row.end <= position)
        )

    @property
    def front(self) -> Offset:
        """Where the hole at offset 0 ends; 0 if there is none."""
        return self.ranges[0].end if self.ranges and self.ranges[0].start == 0 else Offset(0)

    @property
    def forgotten(self) -> tuple[OffsetRange, ...]:
        """The hole at offset 0, without what a repair took out: the replica's own retention deleted any row in it."""
        left: tuple[OffsetRange, ...] = tuple(one for one in self.ranges[:1] if one.start == 0)
        for out in Holes(ranges=left).within_each(self.taken_out):
            left = _without(left, out)
        return left

    def within(self, wanted: OffsetRange) -> tuple[OffsetRange, ...]:
        parts = ((max(hole.start, wanted.start), min(hole.end, wanted.end)) for hole in self.ranges)
        return tuple(OffsetRange(start, end) for start, end in parts if start < end)

    def within_each(self, wanted: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        """The parts of the holes that lie in any of `wanted`, which are apart from each other."""
        return tuple(part for one in wanted for part in self.within(one))

    def hold(self, wanted: OffsetRange) -> bool:
        return any(hole.holds(wanted) for hole in self.ranges)

    def _changed(self, ranges: tuple[OffsetRange, ...]) -> Holes:
        out = Holes(ranges=ranges).within_each(self.taken_out)
        return replace(self, ranges=ranges, commit=uuid.uuid4().hex, taken_out=out)


def joined(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Join ranges: the same offsets in as few ranges as possible, in order."""
    found: list[OffsetRange] = []
    for one in sorted(one for one in ranges if not one.is_empty):
        if found and one.start <= found[-1].end:
            found[-1] = OffsetRange(found[-1].start, max(found[-1].end, one.end))
        else:
            found.append(one)
    return tuple(found)


def cut(ranges: Iterable[OffsetRange], position: Offset) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(one.start, min(one.end, position)) for one in ranges if one.start < position)


def _without(holes: Sequence[OffsetRange], filled: OffsetRange) -> tuple[OffsetRange, ...]:
    around = next((hole for hole in holes if hole.holds(filled)), None)
    if around is None:
        raise ValueError(f"{filled} lies in none of the holes {', '.join(map(str, holes)) or '(there are none)'}")
    rests = (OffsetRange(around.start, filled.start), OffsetRange(filled.end, around.end))
    return joined([hole for hole in holes if hole != around] + list(rests))


_STORED: Final = StoredJson(Holes, always=("ranges", "fills", "commit", "ledger"))
