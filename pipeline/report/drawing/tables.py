"""The figures of a report in numbers: what a screen reader reads, and whoever wants to know exactly. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pipeline.inspect.typed_status import TypedStatus
from pipeline.monitoring.display import count, number, size
from pipeline.report.drawing.coverage_figures import range_words
from pipeline.report.drawing.wording import span, time
from pipeline.report.facts import (
    Election,
    Facts,
    Flaw,
    FlawedRange,
    LogFacts,
    Pending,
    ReportedIncidents,
    SlowestGroups,
    TopTopics,
    subject_of,
    subjects,
)
from sources.readable import instant

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TableColumn:
    """Numbers stand at the right; what is not short may be broken anywhere."""

    name: str
    is_number: bool = False
    is_short: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are text as it is, not HTML. `note` says what is left out."""

    name: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def logs(facts: Facts) -> Table:
    """Every log, and what of it is there; a topic is a row."""
    return _logs("Logs", _wholes(facts), facts.flaws, subject_of)


def partitions(facts: Facts) -> Table:
    found = [one for subject in subjects(facts.logs) if subject.is_topic for one in subject.logs]
    return _logs("Partitions", found, facts.flaws, lambda log_id: log_id)


def _wholes(facts: Facts) -> list[LogFacts]:
    return [one.whole for one in subjects(facts.logs)]


def _logs(name: str, found: Sequence[LogFacts], flaws: Sequence[FlawedRange], of: Callable[[str], str]) -> Table:
    """`of` says in which row a flawed range of a log counts."""
    units_of: dict[tuple[str, Flaw], int] = {}
    for (log_id, flaw), units_of_log in {(one.log_id, one.flaw): one.units_of_log for one in flaws}.items():
        units_of[of(log_id), flaw] = units_of.get((of(log_id), flaw), 0) + units_of_log

    def units(log_id: str, flaw: Flaw) -> str:
        return number(units_of.get((log_id, flaw), 0))

    return _table(
        name,
        found,
        {
            "log": lambda one: one.log_id,
            "records": lambda one: number(one.records),
            "size": lambda one: size(one.bytes),
            "from offset": lambda one: number(one.begin),
            "complete to": lambda one: number(one.complete_to),
            "end": lambda one: number(one.end),
            "complete through": lambda one: time(one.complete_through),
            "offsets missing": lambda one: units(one.log_id, Flaw.MISSING),
            "accepted": lambda one: units(one.log_id, Flaw.ACCEPTED),
            "deleted": lambda one: units(one.log_id, Flaw.DELETED),
            "open incidents": lambda one: number(one.open_incidents),
        },
        text=("log", "complete through"),
    )


def throughput(facts: Facts) -> Table:
    """The records and bytes of each log, in all and in the busiest span."""
    peaks: dict[str | None, tuple[float, float]] = {}
    for one in facts.timeline.commits:
        records, sizes = peaks.get(one.log_id, (0.0, 0.0))
        peaks[one.log_id] = (max(records, one.records), max(sizes, one.bytes))
    width_s = facts.timeline.width_s

    def peak(log_id: str, which: int) -> float | None:
        return peaks[log_id][which] / width_s if log_id in peaks else None

    return _table(
        f"Throughput, peaks over {span(width_s)}",
        _wholes(facts),
        {
            "log": lambda one: one.log_id,
            "records": lambda one: number(one.records),
            "size": lambda one: size(one.bytes),
            "peak records/s": lambda one: _rate(peak(one.log_id, 0)),
            "peak MB/s": lambda one: _rate(peak(one.log_id, 1), 1e6),
            "last commit": lambda one: time(one.last_committed),
        },
        text=("log", "last commit"),
    )


def waits(facts: Facts) -> Table:
    """How long records of each log waited."""
    return _table(
        "From store to commit",
        _wholes(facts),
        {
            "log": lambda one: one.log_id,
            "median commit": lambda one: span(one.waited_p50_s),
            "99 of 100 commits": lambda one: span(one.waited_p99_s),
            "newest record of the last commit": lambda one: span(one.newest_waited_s),
        },
        text=("log",),
    )


def flawed_ranges(facts: Facts) -> Table:
    """The ranges that are missing, doubtful or deleted."""
    of = sum({(one.log_id, one.flaw): one.all_of_log for one in facts.flaws}.values())
    return _table(
        "Ranges that are not there",
        facts.flaws,
        {
            "log": lambda one: one.log_id,
            "what": lambda one: one.flaw.value,
            "offsets": range_words,
            "stored after": lambda one: time(one.stored_after),
            "stored before": lambda one: time(one.stored_before),
            "why": lambda one: one.why or "",
        },
        text=("log", "what", "offsets", "stored after", "stored before", "why"),
        of=of,
    )


def elections(found: Sequence[Election]) -> Table:
    """The newest first."""
    return _table(
        "Elections of masters",
        found,
        {
            "log": lambda one: one.log_id,
            "number": lambda one: number(one.number),
            "from offset": lambda one: number(one.start),
            "master": lambda one: one.master or "",
            "first seen": lambda one: time(one.since),
        },
        text=("log", "master", "first seen"),
    )


def topics(top: TopTopics) -> Table:
    return _table(
        "Topics with the most messages",
        top.topics,
        {
            "topic": lambda one: one.topic,
            "messages": lambda one: number(one.messages),
            "bytes of bodies": lambda one: number(one.bytes),
        },
        text=("topic",),
        of=top.of,
    )


def typed(found: Sequence[TypedStatus]) -> Table:
    return _table(
        "Typed tables",
        found,
        {
            "table": lambda one: one.name,
            "rows": lambda one: number(one.figures["rows"]),
            "deleted since": lambda one: number(one.figures["deleted"]),
            "values unfit": lambda one: number(one.figures["unfit_values"]),
            "in messages": lambda one: number(one.figures["unfit_messages"]),
            "without a row": lambda one: number(one.figures["without_row"]),
            "columns": lambda one: number(len(one.columns)),
            "complete through": lambda one: _through(one.complete_through_us),
            "logs": lambda one: number(len(one.logs)),
            "of these behind": lambda one: number(one.logs_behind),
        },
        text=("table", "complete through"),
    )


def _through(at_us: int | None) -> str:
    return time(None if at_us is None else instant(at_us))


def groups(slowest: SlowestGroups) -> Table:
    return _table(
        "Consumer groups, the slowest first",
        slowest.groups,
        {
            "group": lambda one: one.consumer_group,
            "topic": lambda one: one.topic,
            "log": lambda one: one.log_id,
            "queues, partitions": lambda one: number(one.queues),
            "messages behind": lambda one: number(one.messages_behind),
            "behind in time": lambda one: span(one.seconds_behind),
        },
        text=("group", "topic", "log"),
        of=slowest.of,
    )


def pending(name: str, waiting: Pending, source: str, times: tuple[str, str]) -> Table:
    """Where what is pending waits; `times` name the first and the last."""
    return _table(
        name,
        waiting.waiting,
        {
            source: lambda one: one.source,
            "topic": lambda one: one.topic,
            "log": lambda one: one.log_id,
            "pending": lambda one: number(one.count),
            times[0]: lambda one: time(one.first),
            times[1]: lambda one: time(one.last),
        },
        text=(source, "topic", "log", *times),
        of=waiting.places,
    )


def incidents(found: ReportedIncidents) -> Table:
    return _table(
        "Incidents",
        found.incidents,
        {
            "state": lambda one: one.state,
            "log": lambda one: one.log_id,
            "condition": lambda one: one.condition,
            "range": lambda one: f"{number(one.start)} – {number(one.end)}",
            "found": lambda one: time(one.detected_at),
            "cause": lambda one: one.cause,
            "done": lambda one: one.action,
            "note": lambda one: one.note or "",
            "id": lambda one: one.id,
        },
        text=("state", "log", "condition", "range", "found", "cause", "done", "note", "id"),
        of=found.of,
    )


_MOST_ROWS: Final = 500
_SHORT: Final = 23  # characters: a time is short


def _table(
    name: str,
    values: Iterable[_T],
    cells: dict[str, Callable[[_T], str]],
    *,
    text: Sequence[str],
    of: int | None = None,
) -> Table:
    every = list(values)
    shown = every[:_MOST_ROWS]
    total = len(every) if of is None else of
    note = f"{len(shown):,} of {count(total, 'row')}." if len(shown) < total else ""
    rows = tuple(tuple(cell(one) for cell in cells.values()) for one in shown)
    columns = tuple(
        TableColumn(column, is_number=column not in text, is_short=all(len(row[at]) <= _SHORT for row in rows))
        for at, column in enumerate(cells)
    )
    return Table(name, columns, rows, note)


def _rate(value: float | None, unit: Any = 1) -> str:
    return "–" if value is None else f"{value / unit:,.1f}"
