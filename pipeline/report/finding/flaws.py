"""What of each log is missing, accepted, deleted or doubtful, by the ledger and the incidents alone. Pure.

`sinks/proof/completeness.py` says the same of one log by its state, too: what counts as joined is decided there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from pipeline.report.facts import Flaw, FlawedRange
from pipeline.report.finding.ranges import Incident, LedgerRanges, greatest, is_of_log, least
from sinks.proof.completeness import connected, parts_of
from sources.offsets import Offset, OffsetRange

_MOST_DOUBTS: Final = 100


def flaws(ranges: LedgerRanges, incidents: Sequence[Incident], most: int) -> list[FlawedRange]:
    """Return the `most` largest of each log and kind, by log, start and kind."""
    there = sorted((one for one in incidents if one["state"] != "healed"), key=lambda one: one["state"] != "open")
    found = [
        one
        for log_id in sorted({*ranges.log_ids, *(one["log_id"] for one in there)})
        for one in _holes(log_id, ranges.of_log(log_id), [one for one in there if one["log_id"] == log_id])
    ]
    found += _doubts(ranges, there)
    kept = (one for _, of_kind in groupby(sorted(found, key=_kind), key=_kind) for one in _largest(list(of_kind), most))
    told = (_with_times(one, ranges.of_log(one.log_id)) for one in kept)
    return sorted(told, key=lambda one: (one.log_id, one.start, one.flaw.name))


def _kind(one: FlawedRange) -> tuple[str, str]:
    return one.log_id, one.flaw.name


def _largest(of_kind: Sequence[FlawedRange], most: int) -> Iterator[FlawedRange]:
    units = sum(one.end - one.start for one in of_kind)
    for one in sorted(of_kind, key=lambda one: (one.start - one.end, one.start))[:most]:
        yield replace(one, all_of_log=len(of_kind), units_of_log=units)


def _holes(log_id: str, rows: LedgerRanges, incidents: Sequence[Incident]) -> Iterator[FlawedRange]:
    """Yield the ranges that no live row covers, between the first and last offset that ledger and incidents know.

    `incidents` are not healed, the open ones first.
    """
    both = (rows.live(), rows.deleted())
    whole, gone = ([one for one, _ in connected(of["start"], of["end"])[0]] for of in both)
    told = [_Reason(_range(one), Flaw.MISSING if one["state"] == "open" else Flaw.ACCEPTED, one) for one in incidents]
    reasons = [*told, *(_Reason(one, Flaw.DELETED) for one in gone)]
    within = [*whole, *gone, *(one.place for one in told if one.incident is not None and is_of_log(one.incident))]
    if not within:
        return
    begin, end = min(one.start for one in within), max(one.end for one in within)
    for before, after in pairwise([OffsetRange(begin, begin), *whole, OffsetRange(end, end)]):
        gap = OffsetRange(before.end, max(before.end, after.start))
        near = [one for one in reasons if one.place.overlaps(gap)]
        for place, flaw in parts_of(gap, [one.place for one in near], partial(_flaw_at, near)):
            about = (one.incident for one in near if one.incident is not None and one.place.overlaps(place))
            why = None if flaw is Flaw.DELETED else next(map(_words, about), None)
            yield _flawed(log_id, flaw, place, why)


class _Reason(NamedTuple):
    """Why offsets of `place` are not there; of an incident also which."""

    place: OffsetRange
    flaw: Flaw
    incident: Incident | None = None


def _flaw_at(reasons: Sequence[_Reason], at: Offset) -> Flaw:
    return next((one.flaw for one in reasons if at in one.place), Flaw.MISSING)


def _doubts(ranges: LedgerRanges, incidents: Sequence[Incident]) -> Iterator[FlawedRange]:
    """Open incidents over records that are there, the newest of them."""
    for one in newest_first([one for one in incidents if one["state"] == "open"])[:_MOST_DOUBTS]:
        if len(ranges.of_log(one["log_id"]).live().over(one["start"], one["end"]).log):
            yield _flawed(one["log_id"], Flaw.DOUBTFUL, _range(one), _words(one))


def _flawed(log_id: str, flaw: Flaw, place: OffsetRange, why: str | None) -> FlawedRange:
    """Make a range without times, as if it were the only one of its kind."""
    return FlawedRange(
        log_id=log_id,
        flaw=flaw,
        start=place.start,
        end=place.end,
        stored_after=None,
        stored_before=None,
        why=why,
        all_of_log=1,
        units_of_log=place.size,
    )


def _with_times(one: FlawedRange, rows: LedgerRanges) -> FlawedRange:
    """Add times: of the messages around what is not there; of records that are or were there, their own."""
    first, last = "first_store_timestamp", "last_store_timestamp"
    if one.flaw in (Flaw.DELETED, Flaw.DOUBTFUL):
        own = (rows.deleted() if one.flaw is Flaw.DELETED else rows.live()).over(one.start, one.end)
        return replace(one, stored_after=least(own[first]), stored_before=greatest(own[last]))
    earlier, later = rows["end"] <= one.start, rows["start"] >= one.end
    return replace(one, stored_after=greatest(rows[last][earlier]), stored_before=least(rows[first][later]))


def _range(incident: Incident) -> OffsetRange:
    return OffsetRange(incident["start"], incident["end"])


def newest_first(incidents: Sequence[Incident]) -> list[Incident]:
    """Sort incidents by when they were found, then by log and name."""
    named = sorted(incidents, key=lambda one: (one["log_id"], one["id"]))
    return sorted(named, key=lambda one: one["detected_at"], reverse=True)


def _words(incident: Incident) -> str:
    return f"{incident['condition']}: {incident['cause']}"
