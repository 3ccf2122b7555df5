"""What of each log is missing, accepted, deleted or doubtful, by the ledger and the incidents alone. Pure.

`sinks/proof/completeness.py` says the same of one log by its state, too: what counts as joined is decided there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby, pairwise
from typing import Final

from pipeline.report.facts import Flaw, FlawedRange
from pipeline.report.finding.ranges import NO_TIME, Incident, LedgerRanges, greatest, is_of_log, least
from sinks.proof.completeness import connected, parts_of
from sources.offsets import Offset, OffsetRange

_MOST_DOUBTS: Final = 100


def flaws(ranges: LedgerRanges, incidents: Sequence[Incident], most: int) -> list[FlawedRange]:
    """Of each log and kind the `most` largest, by log, start and kind."""
    there = [one for one in incidents if one["state"] != "healed"]
    found = [
        one
        for log_id in sorted({*ranges.log_ids, *(one["log_id"] for one in there)})
        for one in _holes(log_id, ranges.of_log(log_id), [one for one in there if one["log_id"] == log_id])
    ]
    found += _doubts(ranges, there)
    kept = (one for _, of_kind in groupby(sorted(found, key=_kind), key=_kind) for one in _largest(list(of_kind), most))
    return sorted(kept, key=lambda one: (one.log_id, one.start, one.flaw.name))


def _kind(one: FlawedRange) -> tuple[str, str]:
    return one.log_id, one.flaw.name


def _largest(of_kind: Sequence[FlawedRange], most: int) -> Iterator[FlawedRange]:
    units = sum(one.end - one.start for one in of_kind)
    for one in sorted(of_kind, key=lambda one: (one.start - one.end, one.start))[:most]:
        yield replace(one, all_of_log=len(of_kind), units_of_log=units)


def _holes(log_id: str, rows: LedgerRanges, incidents: Sequence[Incident]) -> Iterator[FlawedRange]:
    """What nothing live covers, within what the ledger and the commits tell of the log; `incidents` are not healed."""
    live, deleted = rows.live(), rows.chosen(rows["deleted_at"] != NO_TIME)
    whole, gone = (_connected(of) for of in (live, deleted))
    told = [(_range(one), one) for one in sorted(incidents, key=lambda one: one["state"] != "open")]
    within = [*whole, *gone, *(place for place, one in told if is_of_log(one))]
    if not within:
        return
    reasons = [
        *((place, Flaw.MISSING if one["state"] == "open" else Flaw.ACCEPTED) for place, one in told),
        *((one, Flaw.DELETED) for one in gone),
    ]
    borders = [place for place, _ in reasons]
    begin, end = min(one.start for one in within), max(one.end for one in within)
    edges = [OffsetRange(begin, begin), *whole, OffsetRange(end, end)]
    for before, after in pairwise(edges):
        gap = OffsetRange(before.end, max(before.end, after.start))
        for place, flaw in parts_of(gap, borders, lambda at: _first(reasons, at) or Flaw.MISSING):
            if flaw is Flaw.DELETED:
                own = deleted.over(place)
                times = least(own["first_store_timestamp"]), greatest(own["last_store_timestamp"])
                why = None
            else:
                earlier, later = rows["end"] <= place.start, rows["start"] >= place.end
                times = greatest(rows["last_store_timestamp"][earlier]), least(rows["first_store_timestamp"][later])
                why = next((_words(one) for about, one in told if about.overlaps(place)), None)
            yield _flawed(log_id, flaw, place, times, why)


def _connected(rows: LedgerRanges) -> list[OffsetRange]:
    return [one for one, _ in connected(rows["start"], rows["end"])[0]]


def _first(reasons: Sequence[tuple[OffsetRange, Flaw]], at: Offset) -> Flaw | None:
    return next((flaw for place, flaw in reasons if at in place), None)


def _range(incident: Incident) -> OffsetRange:
    return OffsetRange(incident["start"], incident["end"])


def _flawed(
    log_id: str, flaw: Flaw, place: OffsetRange, times: tuple[datetime | None, datetime | None], why: str | None
) -> FlawedRange:
    """The only one of its kind as yet."""
    return FlawedRange(
        log_id=log_id,
        flaw=flaw,
        start=place.start,
        end=place.end,
        stored_after=times[0],
        stored_before=times[1],
        why=why,
        all_of_log=1,
        units_of_log=place.size,
    )


def _doubts(ranges: LedgerRanges, incidents: Sequence[Incident]) -> Iterator[FlawedRange]:
    """Open incidents over records that are there, the newest of them."""
    for one in newest_first([one for one in incidents if one["state"] == "open"])[:_MOST_DOUBTS]:
        rows = ranges.of_log(one["log_id"]).live().over(_range(one))
        if len(rows.log):
            times = least(rows["first_store_timestamp"]), greatest(rows["last_store_timestamp"])
            yield _flawed(one["log_id"], Flaw.DOUBTFUL, _range(one), times, _words(one))


def newest_first(incidents: Sequence[Incident]) -> list[Incident]:
    """By when they were found, then by log and name."""
    named = sorted(incidents, key=lambda one: (one["log_id"], one["id"]))
    return sorted(named, key=lambda one: one["detected_at"], reverse=True)


def _words(incident: Incident) -> str:
    return f"{incident['condition']}: {incident['cause']}"
