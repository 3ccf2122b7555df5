"""How complete a replica is: what its ledger, its holes and its position say together. Pure.

The ranges of the ledger and the holes have to fill ``[0, position)``, each offset once. So three things are wrong, and
nothing else can be:

    an overlap             two rows of the ledger, or a row and a hole, claim the same offsets
    an unexplained range   no row has it, and it is in no hole, or in one for which there is no reason
    a row too far          it lies across the position, which one commit moved together with the row's data

A hole has a reason: it lies before the replica's beginning, an incident tells of its loss, or the ledger says that the
replica's own retention deleted it. Different parts of one hole may have different ones. A row within the hole at the
front was deleted, too, and does not say so yet: a retention takes the records first (`sinks/upkeep/retention.py`). So
does a repair of damage: a row that lies in what it took out (`Holes.taken_out`) is on its way out, and claims nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import groupby, pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinks.state.holes import Holes, joined
from sinks.values.incident import IncidentRow, State
from sources.epochs import Epochs
from sources.errors import CoverageError
from sources.loss import WayPast
from sources.offsets import LogId, Offset, OffsetRange

Ints = npt.NDArray[np.int64]
_Kind = TypeVar("_Kind")
COLUMNS = ("start", "end", "first_store_timestamp", "last_store_timestamp", "deleted_at")
"""The columns of the ledger that are needed here."""
_HINT = (
    "Something else changed the tables: look at the history of log and ledger (DESCRIBE HISTORY), and compare the "
    "range with the master: logtwin verify."
)


class Reason(Enum):
    """Why a range is not in the table."""

    BEGINNING = "before the beginning"
    INCIDENT = "incident"
    RETENTION = "retention"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the log that is whole. Times are the store's, of its first and last message; None without one.

    Times here are microseconds since 1970, UTC.
    """

    range: OffsetRange
    first_us: int | None
    last_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A range that is not in the table. It lies in time after `after_us` and before `before_us`, the master's messages
    around it; None where there is none."""

    range: OffsetRange
    reason: Reason
    incident: IncidentRow | None
    after_us: int | None
    before_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """The tables' accounts of one log. `ledger` has COLUMNS; rows at or above the position are of newer commits."""

    epoch: int
    position: Offset
    first: Offset
    holes: Holes
    ledger: pa.Table
    incidents: Sequence[IncidentRow] = ()
    elections: Epochs = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Completeness:
    """Ranges that are whole, missing (and why), and claimed twice, in order; and one that lies beyond the position."""

    position: Offset
    whole: tuple[Stretch, ...]
    missing: tuple[Missing, ...]
    overlaps: tuple[OffsetRange, ...]
    beyond: OffsetRange | None

    @classmethod
    def of(cls, accounts: Accounts) -> Completeness:
        position = accounts.position
        rows = _of_no_repair(accounts.ledger.filter(pc.less(accounts.ledger["start"], position)), accounts.holes)
        is_there = pc.and_(pc.is_null(rows["deleted_at"]), pc.greater(rows["end"], accounts.holes.front))
        whole, doubled = stretches(rows.filter(is_there))
        deleted, _ = stretches(rows.filter(pc.invert(is_there)))
        both = [part for one in whole for part in accounts.holes.within(one.range)]
        end = whole[-1].range.end if whole else position
        return cls(
            position=position,
            whole=tuple(whole),
            missing=tuple(_missing(accounts, whole, [one.range for one in deleted])),
            overlaps=joined([*doubled, *both]),
            beyond=_range(position, end) if end > position else None,
        )

    def times_around(self, hole: OffsetRange) -> tuple[int | None, int | None]:
        """When the last message before `hole` and the first one after it were stored; None if there is none."""
        before = [one.last_us for one in self.whole if one.range.end <= hole.start]
        after = [one.first_us for one in self.whole if one.range.start >= hole.end]
        return before[-1] if before else None, after[0] if after else None

    def problem(self, log_id: LogId) -> CoverageError | None:
        """Return an error for the first range that is wrong; None if all are right. A hole with a reason is right."""
        lacking = [one.range for one in self.missing if one.reason is Reason.UNEXPLAINED]
        wrong = [
            *((one, f"the replica lacks {one}, and nothing says why") for one in lacking),
            *((one, f"the replica claims {one} twice") for one in self.overlaps),
            *((one, f"the ledger goes on to {one.end}") for one in (self.beyond,) if one is not None),
        ]
        if not wrong:
            return None
        first, what = min(wrong)
        return CoverageError(
            what,
            log=log_id,
            offset=first.start,
            expected=f"every offset below {self.position}, and no other, once: in the ledger or in an explained hole",
            hint=_HINT,
        )


def _of_no_repair(rows: pa.Table, holes: Holes) -> pa.Table:
    """Leave out rows whose records a repair took out: the ledger may claim them until it has followed."""
    for out in holes.taken_out:
        claims = pc.and_(pc.less(rows["start"], out.end), pc.greater(rows["end"], out.start))
        rows = rows.filter(pc.invert(pc.and_(claims, pc.is_null(rows["deleted_at"]))))
    return rows


def stretches(rows: pa.Table) -> tuple[list[Stretch], list[OffsetRange]]:
    """Join the ranges of ledger `rows` (COLUMNS) where they touch; also return what more than one of them has."""
    rows = rows.sort_by([("start", "ascending"), ("end", "ascending")])
    whole, doubled = connected(rows["start"].to_numpy(), rows["end"].to_numpy())
    first_us, last_us = (_times(rows[name]) for name in ("first_store_timestamp", "last_store_timestamp"))
    return [Stretch(one, _known(first_us[which], 0), _known(last_us[which], -1)) for one, which in whole], doubled


def connected(starts: Ints, ends: Ints) -> tuple[list[tuple[OffsetRange, slice]], list[OffsetRange]]:
    """Ranges in the order of their starts and ends, joined where they touch, each with the places of those that it is
    made of; and what more than one of them has.
    """
    if not starts.size:
        return [], []
    reached = np.maximum.accumulate(ends)
    before = reached[:-1]
    begins = np.flatnonzero(np.concatenate(([True], starts[1:] > before)))
    places = pairwise([*begins.tolist(), starts.size])
    doubled = np.flatnonzero(starts[1:] < before)
    return (
        [(_range(starts[at], reached[upto - 1]), slice(at, upto)) for at, upto in places],
        [_range(starts[at + 1], min(ends[at + 1], before[at])) for at in doubled],
    )


def check_filled(log_id: LogId, ledger: Iterable[OffsetRange], holes: Holes, position: Offset) -> None:
    """Make sure that ranges of the ledger and the holes fill ``[0, position)``, each offset once. Raises CoverageError.

    Why there are holes is not asked here.
    """
    ranges = sorted([*ledger, *holes.ranges])
    whole, doubled = connected(np.array([one.start for one in ranges]), np.array([one.end for one in ranges]))
    edges = pairwise([_range(0, 0), *(one for one, _ in whole), _range(position, position)])
    gaps = [_range(before.end, after.start) for before, after in edges if before.end < after.start]
    beyond = [_range(position, one.end) for one, _ in whole[-1:] if one.end > position]
    found = {"in none": gaps, "in several": doubled, "beyond the position": beyond}
    if wrong := [(one, what) for what, several in found.items() for one in several]:
        first, what = min(wrong)
        raise CoverageError(
            "ledger and holes do not cover each byte exactly once",
            log=log_id,
            offset=first.start,
            expected=f"each offset below {position}, and no other, in one of their ranges",
            found=f"{first} {what}",
            hint="Where a repair or a backfill runs, do it again when that has ended; logtwin coverage shows more.",
        )


def _range(start: int, end: int) -> OffsetRange:
    return OffsetRange(Offset(int(start)), Offset(int(end)))


def _times(column: pa.ChunkedArray) -> Ints:
    """Microseconds; -1 for none."""
    values: Ints = pc.fill_null(column.cast(pa.int64()), -1).to_numpy()
    return values


def _known(times: Ints, which: int) -> int | None:
    """The first (0) or last (-1) time that is known."""
    known = times[times >= 0]
    return int(known[which]) if known.size else None


@dataclass(frozen=True, slots=True)
class _Explanation:
    range: OffsetRange
    reason: Reason
    incident: IncidentRow | None = None


def _missing(accounts: Accounts, whole: Sequence[Stretch], deleted: Sequence[OffsetRange]) -> Iterator[Missing]:
    """Yield the ranges that no row has, cut where the reason changes."""
    known = _explanations(accounts, deleted)
    nothing, position = Stretch(_range(0, 0), None, None), _range(accounts.position, accounts.position)
    for before, after in pairwise([nothing, *whole, Stretch(position, None, None)]):
        gap = _range(before.range.end, max(before.range.end, after.range.start))
        in_holes = Holes(ranges=accounts.holes.within(gap))
        borders = [*in_holes.ranges, *(one.range for one in known)]
        for part, (reason, incident) in parts_of(gap, borders, partial(_explained, holes=in_holes, known=known)):
            yield Missing(
                range=part, reason=reason, incident=incident, after_us=before.last_us, before_us=after.first_us
            )


def _explanations(accounts: Accounts, deleted: Sequence[OffsetRange]) -> list[_Explanation]:
    """List what may explain a hole; the first that does, counts.

    A healed incident explains nothing any more, and one of records that are sound explains nothing at all.
    """
    incidents = [
        one
        for one in accounts.incidents
        if one.state is not State.HEALED and one.found.condition.way is not WayPast.ACCEPT
    ]
    return [
        _Explanation(_range(0, accounts.first), Reason.BEGINNING),
        *(_Explanation(one.found.range, Reason.INCIDENT, one) for one in incidents),
        *(_Explanation(one, Reason.RETENTION) for one in deleted),
    ]


def parts_of(
    gap: OffsetRange, borders: Iterable[OffsetRange], kind: Callable[[Offset], _Kind]
) -> Iterator[tuple[OffsetRange, _Kind]]:
    """Cut `gap` where the `kind` of its offsets changes, which is only where one of `borders` begins or ends."""
    edges = sorted({gap.start, gap.end, *(at for one in borders for at in (one.start, one.end) if at in gap)})
    pieces = [(at, upto, kind(at)) for at, upto in pairwise(edges)]
    for found, same in groupby(pieces, key=lambda piece: piece[2]):
        together = list(same)
        yield _range(together[0][0], together[-1][1]), found


def _explained(at: Offset, holes: Holes, known: Sequence[_Explanation]) -> tuple[Reason, IncidentRow | None]:
    if holes.hold(_range(at, at + 1)):
        for one in known:
            if at in one.range:
                return one.reason, one.incident
    return Reason.UNEXPLAINED, None
