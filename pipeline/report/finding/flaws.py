"""What of each log is missing, accepted, deleted or doubtful: one sweep over where its ranges begin and end. Pure.

Between two such points nothing changes. How many ranges and incidents of each kind cover a piece says what it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Final

import numpy as np

from pipeline.report.facts import Flaw, FlawedRange
from pipeline.report.finding.ranges import NO_TIME, Bools, Incident, Ints, LedgerRanges, is_of_log, moment_at

_MOST_DOUBTS: Final = 100
_AFTER_ALL: Final = int(np.iinfo(np.int64).max)
_KINDS: Final = ("live", "deleted", "open", "closed")


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


@dataclass(frozen=True, slots=True)
class _Points:
    """Where the ranges and incidents of a log begin and end, in order.

    `covering` counts, by kind, those over the piece that begins at each point. `first_stored` is the least first time
    of the ranges that begin there, `_AFTER_ALL` for none; `last_stored` the greatest last time of those that end there.
    """

    at: Ints
    covering: Mapping[str, Ints]
    first_stored: Ints
    last_stored: Ints
    is_of_log: Bools


def _points(rows: LedgerRanges, incidents: Sequence[Incident]) -> _Points:
    count, others = len(rows.log), len(incidents)
    begins = np.concatenate([rows["start"], np.array([one["start"] for one in incidents], dtype=np.int64)])
    ends = np.concatenate([rows["end"], np.array([one["end"] for one in incidents], dtype=np.int64)])
    is_live = rows["deleted_at"] == NO_TIME
    kind = np.concatenate(
        [np.where(is_live, 0, 1), np.array([_KINDS.index(one["state"]) for one in incidents], dtype=np.int64)]
    )
    of_log = np.concatenate([np.ones(count, dtype=bool), np.array([is_of_log(one) for one in incidents], dtype=bool)])
    first = np.where(rows["first_store_timestamp"] == NO_TIME, _AFTER_ALL, rows["first_store_timestamp"])
    none = np.full(others, NO_TIME, dtype=np.int64)
    at, place = np.unique(np.concatenate([begins, ends]), return_inverse=True)
    begin_places, end_places = place[: count + others], place[count + others :]

    def covering(number: int) -> Ints:
        steps = np.zeros(len(at), dtype=np.int64)
        np.add.at(steps, begin_places[kind == number], 1)
        np.add.at(steps, end_places[kind == number], -1)
        return np.cumsum(steps)

    first_stored = np.full(len(at), _AFTER_ALL, dtype=np.int64)
    np.minimum.at(first_stored, begin_places[:count], first)
    last_stored = np.full(len(at), NO_TIME, dtype=np.int64)
    np.maximum.at(last_stored, end_places, np.concatenate([rows["last_store_timestamp"], none]))
    is_edge = np.zeros(len(at), dtype=bool)
    is_edge[begin_places[of_log]] = is_edge[end_places[of_log]] = True
    return _Points(
        at, {name: covering(number) for number, name in enumerate(_KINDS)}, first_stored, last_stored, is_edge
    )


def _holes(log_id: str, rows: LedgerRanges, incidents: Sequence[Incident]) -> Iterator[FlawedRange]:
    """Pieces within the log that nothing live covers; neighbours of one kind are one."""
    points = _points(rows, incidents)
    edges = points.at[points.is_of_log]
    if not len(edges):
        return
    start, end = points.at[:-1], points.at[1:]
    deleted, opened, closed = (points.covering[kind][:-1] > 0 for kind in ("deleted", "open", "closed"))
    kind = np.select([opened, closed, deleted], [0, 1, 2], 0)
    # the messages next to it; of deleted records their own
    after = np.where(deleted, points.first_stored[:-1], np.maximum.accumulate(points.last_stored)[:-1])
    before = np.where(deleted, points.last_stored[1:], points.first_stored[1:])
    is_hole = (points.covering["live"][:-1] == 0) & (start >= edges[0]) & (end <= edges[-1])
    holes = np.flatnonzero(is_hole)
    if not len(holes):
        return
    goes_on = (end[holes[:-1]] == start[holes[1:]]) & (kind[holes[:-1]] == kind[holes[1:]])
    for piece in np.split(holes, np.flatnonzero(~goes_on) + 1):
        yield _hole(
            log_id,
            (Flaw.MISSING, Flaw.ACCEPTED, Flaw.DELETED)[kind[piece[0]]],
            (int(start[piece[0]]), int(end[piece[-1]])),
            (
                moment_at(min(_known(after[piece]), default=NO_TIME)),
                moment_at(max(_known(before[piece]), default=NO_TIME)),
            ),
            incidents,
        )


def _known(times: Ints) -> list[int]:
    return [int(at) for at in times if at not in (NO_TIME, _AFTER_ALL)]


def _hole(
    log_id: str,
    flaw: Flaw,
    place: tuple[int, int],
    times: tuple[datetime | None, datetime | None],
    incidents: Sequence[Incident],
) -> FlawedRange:
    start, end = place
    about = [one for one in incidents if one["start"] < end and one["end"] > start]
    why = max(about, key=lambda one: one["state"] == "open", default=None) if flaw is not Flaw.DELETED else None
    return FlawedRange(
        log_id=log_id,
        flaw=flaw,
        start=start,
        end=end,
        stored_after=times[0],
        stored_before=times[1],
        why=None if why is None else _words(why),
        all_of_log=1,
        units_of_log=end - start,
    )


def _doubts(ranges: LedgerRanges, incidents: Sequence[Incident]) -> Iterator[FlawedRange]:
    """Open incidents over records that are there, the newest of them."""
    for one in newest_first([one for one in incidents if one["state"] == "open"])[:_MOST_DOUBTS]:
        rows = ranges.of_log(one["log_id"]).live()
        rows = rows.chosen((rows["start"] < one["end"]) & (rows["end"] > one["start"]))
        if len(rows.log):
            first, last = _known(rows["first_store_timestamp"]), _known(rows["last_store_timestamp"])
            yield FlawedRange(
                log_id=one["log_id"],
                flaw=Flaw.DOUBTFUL,
                start=one["start"],
                end=one["end"],
                stored_after=moment_at(min(first, default=NO_TIME)),
                stored_before=moment_at(max(last, default=NO_TIME)),
                why=_words(one),
                all_of_log=1,
                units_of_log=one["end"] - one["start"],
            )


def newest_first(incidents: Sequence[Incident]) -> list[Incident]:
    """By when they were found, then by log and name."""
    named = sorted(incidents, key=lambda one: (one["log_id"], one["id"]))
    return sorted(named, key=lambda one: one["detected_at"], reverse=True)


def _words(incident: Incident) -> str:
    return f"{incident['condition']}: {incident['cause']}"
