"""The state of a typed table: its position in each of its logs. Pure; kept in domain metadata of the table itself.

It is JSON under ``logtwin.table``, rewritten by every commit that moves the table. So if two commits do, Kernel refuses
the second, and there are never rows without their position:

    generation how often the table was rebuilt; its dead letters have it, too
    number     how many commits have moved it
    logs       for each log: epoch, offset (every message below it is in the table, or unfit) and the holes below it
    changes    how the columns have changed so far
    columns    the fingerprint of the definition: if that changes, the table has to be rebuilt
    sources    the topics of which a message has come; a table that an older version has made does not say
    emptied    the newest message that emptied the table at its source: no older row is in it; of a table with a row for
               each change all such messages, for one that comes late ends at the next of them

A typed table is a function of its logs: it lacks what they lack. So comparing the holes shows which rows have to go,
and which have to come.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from typing import Final

from sinks.state.holes import cut, joined, numbers_of, ranges_of
from sinks.typed.columns import ColumnChange
from sources.offsets import LogId, Offset, OffsetRange

DOMAIN: Final = "logtwin.table"


@dataclass(frozen=True, slots=True)
class Followed:
    """The position of a table in one log, and the holes below it, which neither has."""

    epoch: int
    offset: Offset
    holes: tuple[OffsetRange, ...] = ()

    @property
    def whole(self) -> OffsetRange:
        """The range from the first record up to the next hole: everything that the log has there, the table has."""
        parts = without([OffsetRange(Offset(0), self.offset)], self.holes)
        return parts[0] if parts else OffsetRange(self.offset, self.offset)


@dataclass(frozen=True, slots=True)
class Emptied:
    """A message that emptied the table at its source: its place in its log and at the source, when it was stored.

    `at_us` is when the source did it; only a table with a row for each change needs it.
    """

    log_id: str
    offset: int
    index: int = 0
    stored_us: int | None = None
    order: str | None = None
    at_us: int | None = None

    def newer(self, other: Emptied | None) -> Emptied:
        """The later one, by the order of rows (`sinks/typed/step/newest.py`)."""
        if other is None:
            return self
        if (self.order or "", self.log_id) == (other.order or "", other.log_id):
            return max(self, other, key=lambda one: (one.offset, one.index))
        return max(self, other, key=lambda one: (one.order or "", one.stored_us or 0, one.log_id))


def last_of(emptied: Iterable[Emptied]) -> tuple[Emptied, ...]:
    """The newest of them; none of none."""
    each = (*emptied,)
    return (reduce(lambda found, one: one.newer(found), each),) if each else ()


@dataclass(frozen=True, slots=True)
class TypedState:
    """The state of a typed table; see the module's docstring."""

    made: str
    generation: int = 1
    number: int = 0
    logs: Mapping[LogId, Followed] = field(default_factory=dict)
    changes: tuple[ColumnChange, ...] = ()
    sources: tuple[str, ...] | None = ()
    emptied: tuple[Emptied, ...] = ()

    def as_json(self) -> str:
        logs = {
            str(log_id): {"epoch": one.epoch, "offset": one.offset, "holes": numbers_of(one.holes)}
            for log_id, one in self.logs.items()
        }
        changes = [asdict(one) for one in self.changes]
        emptied = {"emptied": [asdict(one) for one in self.emptied]} if self.emptied else {}
        return json.dumps(
            {
                "columns": self.made, "generation": self.generation, "number": self.number, "logs": logs,
                "changes": changes, "sources": self.sources, **emptied,
            },
            separators=(",", ":"),
        )  # fmt: skip

    @classmethod
    def from_json(cls, text: str) -> TypedState:
        """The inverse of `as_json`. Raises KeyError, TypeError or ValueError for what it did not write."""
        values = json.loads(text)
        logs = {
            LogId.parse(log_id): Followed(one["epoch"], Offset(one["offset"]), ranges_of(one["holes"]))
            for log_id, one in values["logs"].items()
        }
        changes = tuple(ColumnChange(**one) for one in values["changes"])
        sources = values.get("sources")
        told = None if sources is None else tuple(sources)
        emptied = values.get("emptied", ())
        each = (emptied,) if isinstance(emptied, dict) else emptied  # only the newest was kept before histories were
        by = tuple(Emptied(**one) for one in each)
        return cls(values["columns"], values["generation"], values["number"], logs, changes, told, by)

    def moved(
        self,
        logs: Mapping[LogId, Followed],
        changes: Sequence[ColumnChange] = (),
        sources: Iterable[str] = (),
        emptied: Iterable[Emptied] | None = None,
    ) -> TypedState:
        """The state of the next commit; `emptied` takes the place of what it had before, if there is any."""
        found = None if self.sources is None else tuple(sorted({*self.sources, *sources}))
        return replace(
            self,
            number=self.number + 1,
            logs={**self.logs, **logs},
            changes=(*self.changes, *changes),
            sources=found,
            emptied=self.emptied if emptied is None else tuple(emptied),
        )


@dataclass(frozen=True, slots=True)
class TableWork:
    """What one step has to do for one log: remove rows that start in `out`, or add messages in `into`; never both.

    Afterwards the table is at `to`. `back_to` is where the log went back to, if it did: everything known above it
    belongs to another history.
    """

    to: Followed
    out: tuple[OffsetRange, ...] = ()
    into: tuple[OffsetRange, ...] = ()
    back_to: Offset | None = None


def way(
    was: Followed | None, epoch: int, end: Offset, holes: Sequence[OffsetRange], branched_at: Offset | None
) -> TableWork:
    """The way from `was` towards `end` of a log in `epoch` with these `holes`: first removals, then additions.

    `branched_at` is where the log left the history of `was`; it is used if the epochs differ. `end` may lie below the
    log's position, but below `was` only if the log went back.
    """
    if was is None:
        was = Followed(epoch, Offset(0))
    back_to = None if was.epoch == epoch else Offset(0) if branched_at is None else branched_at
    start = was.offset if back_to is None else min(was.offset, back_to)
    before, now = cut(was.holes, start), cut(holes, start)
    out = joined([OffsetRange(start, was.offset), *without(now, before)])
    if out or back_to is not None:
        return TableWork(Followed(epoch, start, joined([*before, *now])), out=out, back_to=back_to)
    end = max(end, start)
    come = joined([*without(before, now), *without([OffsetRange(start, end)], holes)])
    return TableWork(Followed(epoch, end, joined(cut(holes, end))), into=come)


def without(ranges: Sequence[OffsetRange], holes: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The parts of `ranges` that lie in none of `holes`."""
    gone, left = joined(holes), list[OffsetRange]()
    for one in ranges:
        start, at = one.start, bisect_right(gone, one.start, key=lambda hole: hole.end)
        while start < one.end:
            end = one.end if at == len(gone) else min(one.end, gone[at].start)
            if start < end:
                left.append(OffsetRange(start, end))
            start = one.end if at == len(gone) else gone[at].end
            at += 1
    return left
