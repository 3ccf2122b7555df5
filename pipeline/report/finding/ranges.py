"""What the ledger tells a report: of each log what is there, and what was committed when. Pure.

It is read whole, and takes some 350 bytes a row while it is: a million commits are 350 MB, and all sums over them take
two seconds. What a row says of others stands in the order of their starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.report.drawing.plotting import SERIES
from pipeline.report.facts import Commits, LogFacts, Timeline, subject_of
from sinks.proof.completeness import connected
from sinks.values.ledger_row import JOINED, STREAM
from sources.readable import instant

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_WIDTHS_S: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(_MINUTE_S * count for count in (1, 2, 5, 10, 15, 30)),
    *(_HOUR_S * count for count in (1, 2, 3, 6, 12)),
    *(_DAY_S * count for count in (1, 2, 7, 14, 28, 91, 364)),
)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Incident = Mapping[str, Any]
"""A row of the table `incidents`."""

NO_TIME: Final = int(np.iinfo(np.int64).min)
"""Instead of null, in arrays of microseconds since 1970."""
COLUMNS: Final = (
    *("log_id", "start", "end", "records", "bytes", "first_store_timestamp", "last_store_timestamp"),
    *("committed_at", "origin", "deleted_at"),
)
_NUMBERS: Final = tuple(name for name in COLUMNS if name not in ("log_id", "origin"))
_MOST_SPANS: Final = 120
_SECOND_US: Final = 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def width_s(first: datetime, last: datetime, most: int) -> int:
    """The shortest span of which at most `most` cover the times from `first` to `last`, wherever the spans begin."""
    period_s = (last - first).total_seconds()
    fitting = (width for width in _WIDTHS_S if period_s <= (most - 1) * width)
    return next(fitting, _WIDTHS_S[-1])


@dataclass(frozen=True, slots=True)
class LedgerRanges:
    """Rows of the ledger, each column an array, in the order of log, start and end; `log` is the number of its log."""

    log_ids: tuple[str, ...]
    log: Ints
    columns: Mapping[str, Ints]
    is_stream: Bools
    is_joined: Bools

    @classmethod
    def of(cls, ledger: pa.Table) -> Self:
        """`ledger` has `COLUMNS`."""
        named = ledger["log_id"].combine_chunks().dictionary_encode()
        names = named.dictionary.to_pylist()
        log_ids = tuple(sorted(names))
        places = {name: place for place, name in enumerate(log_ids)}
        log = np.array([places[name] for name in names], dtype=np.int64)[named.indices.to_numpy()]
        order = np.lexsort((_numbers(ledger["end"], NO_TIME), _numbers(ledger["start"], NO_TIME), log))
        nulls = {"records": 0, "bytes": 0}
        columns = {name: _numbers(ledger[name], nulls.get(name, NO_TIME))[order] for name in _NUMBERS}
        is_stream, is_joined = (
            pc.equal(ledger["origin"], origin).fill_null(False).to_numpy()[order] for origin in (STREAM, JOINED)
        )
        return cls(log_ids, log[order], columns, is_stream, is_joined)

    def __getitem__(self, name: str) -> Ints:
        return self.columns[name]

    def chosen(self, which: Bools | slice) -> LedgerRanges:
        """Some of the rows."""
        columns = {name: of[which] for name, of in self.columns.items()}
        return LedgerRanges(self.log_ids, self.log[which], columns, self.is_stream[which], self.is_joined[which])

    def of_log(self, log_id: str) -> LedgerRanges:
        """The rows of one log; none of one that is not there."""
        if log_id not in self.log_ids:
            return self.chosen(slice(0))
        number = self.log_ids.index(log_id)
        first, last = np.searchsorted(self.log, [number, number + 1])
        return self.chosen(slice(int(first), int(last)))

    def live(self) -> LedgerRanges:
        """The rows whose records are there."""
        return self.chosen(self["deleted_at"] == NO_TIME)

    def deleted(self) -> LedgerRanges:
        return self.chosen(self["deleted_at"] != NO_TIME)

    def over(self, start: int, end: int) -> LedgerRanges:
        """The rows that have an offset from `start` on and below `end`."""
        return self.chosen((self["start"] < end) & (self["end"] > start))

    def waited_s(self, since: str) -> Floats:
        """How long after the time `since` each was committed; NaN where there is no such time, or no live job.

        What a backfill or a repair writes is old by nature, and a joined row tells only when the last part of it came.
        """
        counts = self.is_stream & (self[since] != NO_TIME) & (self["committed_at"] != NO_TIME)
        waited = np.full(len(self.log), np.nan)
        waited[counts] = np.maximum((self["committed_at"][counts] - self[since][counts]) / 1e6, 0.0)
        return waited


def _numbers(column: pa.ChunkedArray, null: int) -> Ints:
    """Convert a column to numbers; times are microseconds since 1970."""
    found: Ints = pc.fill_null(column.cast(pa.int64()), null).to_numpy()
    return found


def moment_at(at_us: int) -> datetime | None:
    """The inverse of how arrays have times; None, too, outside of the years 1 to 9999."""
    return None if at_us == NO_TIME else instant(at_us)


def log_facts(ranges: LedgerRanges, incidents: Sequence[Incident]) -> Iterator[LogFacts]:
    """Yield the facts of each log in order: what the view `completeness` has, and times of the commits."""
    for log_id in ranges.log_ids:
        yield _log_facts(log_id, ranges.of_log(log_id), [one for one in incidents if one["log_id"] == log_id])


def _log_facts(log_id: str, rows: LedgerRanges, incidents: Sequence[Incident]) -> LogFacts:
    live = rows.live()
    stretches, _ = connected(live["start"], live["end"])
    whole = live.chosen(stretches[0][1] if stretches else slice(0))
    # what was lost before the first range or behind the last one stands in the incidents alone
    lost = [one for one in incidents if is_of_log(one) and one["state"] != "healed"]
    oldest, newest = rows.waited_s("first_store_timestamp"), rows.waited_s("last_store_timestamp")
    known = newest[~np.isnan(newest)]
    return LogFacts(
        log_id=log_id,
        records=int(live["records"].sum()),
        bytes=int(live["bytes"].sum()),
        begin=min(int(rows["start"].min()), *(one["start"] for one in lost)) if lost else int(rows["start"].min()),
        end=max([int(rows["end"].max()), *(one["end"] for one in lost)]),
        complete_to=int(whole["end"].max()) if len(whole.log) else None,
        complete_through=greatest(whole["last_store_timestamp"]),
        open_incidents=sum(one["state"] == "open" for one in incidents),
        oldest_stored=least(rows["first_store_timestamp"]),
        newest_stored=greatest(rows["last_store_timestamp"]),
        last_committed=greatest(rows["committed_at"]),
        newest_waited_s=float(known[-1]) if len(known) else None,
        waited_p50_s=percentile(oldest, 0.5),
        waited_p99_s=percentile(oldest, 0.99),
    )


def is_of_log(incident: Incident) -> bool:
    """Whether the incident lies in the log: what verify reports may lie where the log has never been."""
    return bool(incident["action"] != "reported")


def timeline(ranges: LedgerRanges) -> Timeline:
    """Sum up commits by equal spans of time and by log or topic; the last colour may be for the rest.

    Where rows were joined, of an hour each, no span is shorter.
    """
    ranges = ranges.chosen(ranges["committed_at"] != NO_TIME)
    if not len(ranges.log):
        return Timeline(1.0)
    committed = ranges["committed_at"]
    first, last = (_EPOCH + timedelta(microseconds=int(at)) for at in (committed.min(), committed.max()))
    width = max(width_s(first, last, _MOST_SPANS), _HOUR_S if ranges.is_joined.any() else 0)
    at = committed - committed % (width * _SECOND_US)
    names, places = _places(ranges)
    place = places[ranges.log]
    order = np.lexsort((place, at))
    at, place = at[order], place[order]
    is_first = np.ones(len(at), dtype=bool)
    is_first[1:] = (at[1:] != at[:-1]) | (place[1:] != place[:-1])
    bounds = [*np.flatnonzero(is_first).tolist(), len(at)]
    records, sizes = ranges["records"][order], ranges["bytes"][order]
    waited = ranges.waited_s("first_store_timestamp")[order]

    def commits(begin: int, end: int) -> Commits:
        return Commits(
            log_id=names[place[begin]] if place[begin] >= 0 else None,
            at=_EPOCH + timedelta(microseconds=int(at[begin])),
            records=int(records[begin:end].sum()),
            bytes=int(sizes[begin:end].sum()),
            waited_p50_s=percentile(waited[begin:end], 0.5),
            waited_p99_s=percentile(waited[begin:end], 0.99),
        )

    return Timeline(width, tuple(map(commits, bounds[:-1], bounds[1:])))


def _places(ranges: LedgerRanges) -> tuple[list[str], Ints]:
    """The names of logs and topics, and of each log the place of its name, -1 where it is one of the rest.

    Those with the most bytes are named.
    """
    names = sorted({subject_of(log_id) for log_id in ranges.log_ids})
    number = {name: place for place, name in enumerate(names)}
    of_log = np.array([number[subject_of(log_id)] for log_id in ranges.log_ids], dtype=np.int64)
    sizes = np.zeros(len(names), dtype=np.int64)
    np.add.at(sizes, of_log[ranges.log], ranges["bytes"])
    shown = len(names) if len(names) <= len(SERIES) else len(SERIES) - 1
    places = np.full(len(names), -1, dtype=np.int64)
    named = np.lexsort((np.arange(len(names)), -sizes))[:shown]
    places[named] = named
    return names, places[of_log]


def percentile(values: Floats, share: float) -> float | None:
    """The least of these values that so great a share of them does not exceed; None where all are NaN."""
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    rank = max(0, math.ceil(share * len(known)) - 1)
    return float(np.partition(known, rank)[rank])


def least(times: Ints) -> datetime | None:
    """The least of times as arrays have them; None where none is known."""
    known = times[times != NO_TIME]
    return moment_at(int(known.min())) if len(known) else None


def greatest(times: Ints) -> datetime | None:
    return moment_at(int(times.max())) if len(times) else None
