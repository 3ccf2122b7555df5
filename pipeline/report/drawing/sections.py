"""The parts of a report in their order: what each says in words, draws, and has tables of. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from pipeline.inspect.overview import unconfigured_words
from pipeline.monitoring.display import count, number, size
from pipeline.report.drawing import coverage_figures, figures, tables
from pipeline.report.drawing.plotting import Drawn
from pipeline.report.drawing.tables import Table
from pipeline.report.drawing.wording import from_now, span
from pipeline.report.facts import Facts, Pending, subjects

_NO_METADATA: Final = (
    "No consumer group is known: the broker's metadata is not in this replica. A job that is connected to the broker "
    "fetches it, unless [metadata] says otherwise; segment files have none."
)
_NO_GROUPS: Final = "No consumer group has committed an offset."


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that stands for itself."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """`name` is its place in the page; each plot has a caption that says what it shows."""

    name: str
    title: str
    sentences: tuple[str, ...] = ()
    tiles: tuple[Tile, ...] = ()
    plots: tuple[tuple[str, Drawn], ...] = ()
    tables: tuple[Table, ...] = ()
    is_table_open: bool = False


def sections(facts: Facts) -> list[PageSection]:
    """All parts; of a replica that has nothing yet what went wrong, if anything did."""
    if not facts.logs:
        return [_incidents(facts)] if facts.incidents.of else []
    return [
        _coverage(facts),
        _throughput(facts),
        _waits(facts),
        _topics(facts),
        *_typed(facts),
        _groups(facts),
        _transactions(facts),
        _delays(facts),
        _incidents(facts),
        *_upkeep(facts),
    ]


def _upkeep(facts: Facts) -> tuple[PageSection, ...]:
    if facts.upkeep is None:
        return ()
    return (PageSection(name="upkeep", title="Upkeep of the tables", sentences=(f"{facts.upkeep}.",)),)


def _coverage(facts: Facts) -> PageSection:
    alarming = [one for one in facts.flaws if one.flaw.is_alarming]
    said = ["Red is missing or doubtful; a triangle stands under what is too small to see."] if alarming else []
    of = len(subjects(facts.logs))
    if of > coverage_figures.ROWS:
        said.append(f"{coverage_figures.ROWS} of {of:,} logs are drawn; the table has all.")
    if facts.unconfigured:
        words = unconfigured_words(facts.unconfigured)
        said.append(f"{words[0].upper()}{words[1:]}.")
    return PageSection(
        name="coverage",
        title="Coverage",
        sentences=tuple(said),
        plots=(
            ("What is there of each log, by offset", coverage_figures.over_offsets(facts)),
            ("The same by when the master stored it, UTC", coverage_figures.over_time(facts)),
        ),
        tables=(tables.logs(facts), tables.partitions(facts), tables.flawed_ranges(facts), *_elections(facts)),
    )


def _elections(facts: Facts) -> tuple[Table, ...]:
    """The section of elections; few groups elect their masters."""
    return (tables.elections(facts.elections),) if facts.elections else ()


def _throughput(facts: Facts) -> PageSection:
    every = span(facts.timeline.width_s)
    total = f"{sum(one.records for one in facts.logs):,} records, {size(sum(one.bytes for one in facts.logs))} in all."
    return PageSection(
        name="throughput",
        title="Throughput",
        sentences=(total,),
        plots=((f"What was committed, a point every {every}, UTC", figures.throughput(facts.timeline)),),
        tables=(tables.throughput(facts),),
    )


def _waits(facts: Facts) -> PageSection:
    section = PageSection(name="lag", title="Lag", tables=(tables.waits(facts),))
    if all(one.waited_p50_s is None for one in facts.timeline.commits):
        return replace(section, sentences=("No commit of a live job with a message in it.",))
    said = "From the master's store of a record to its commit here, of the oldest record in each commit."
    plot = ("How long records waited, by commit time, UTC", figures.waits(facts.timeline))
    return replace(section, sentences=(said,), plots=(plot,))


def _topics(facts: Facts) -> PageSection:
    top = facts.topics
    section = PageSection(name="topics", title="Topics", tables=(tables.topics(top),))
    if not top.topics:
        return replace(section, sentences=("No messages of business topics.",))
    said = f"{count(top.messages, 'message')}, {size(top.bytes)} of bodies in {count(top.of, 'topic')}."
    return replace(section, sentences=(said,), plots=(("The topics with the most messages", figures.top_topics(top)),))


def _typed(facts: Facts) -> tuple[PageSection, ...]:
    """The section of typed tables; few replicas have any."""
    if not facts.tables:
        return ()
    behind = [one.name for one in facts.tables if one.logs_behind or one.counts is None]
    unfit = sum(one.counts.unfit.values for one in facts.tables if one.counts)
    said = [f"Behind their logs: {', '.join(behind)}." if behind else "All are where their logs are."]
    if unfit:
        said.append(f"{count(unfit, 'value')} unfit: the table unfit has them.")
    said += [flaw for one in facts.tables for flaw in one.flaws]
    table = tables.typed(facts.tables)
    return (
        PageSection(name="typed", title="Typed tables", sentences=tuple(said), tables=(table,), is_table_open=True),
    )


def _groups(facts: Facts) -> PageSection:
    slowest = facts.groups
    section = PageSection(name="consumers", title="Consumer lag", tables=(tables.groups(slowest),))
    if not slowest.of:
        return replace(section, sentences=(_NO_GROUPS if facts.has_metadata else _NO_METADATA,))
    pairs = count(slowest.of, "group and topic", "groups and topics")
    if not slowest.behind:
        return replace(section, sentences=(f"No group is behind: {pairs}.",))
    plot = ("How far groups are behind, the worst first", figures.slowest_groups(slowest))
    return replace(section, sentences=(f"{slowest.behind:,} of {pairs} are behind.",), plots=(plot,))


def _transactions(facts: Facts) -> PageSection:
    section = PageSection(name="transactions", title="Transactions")
    plot = "Pending transactions by when they were prepared, UTC"
    times = ("oldest prepared", "newest prepared")
    table = tables.pending("Pending transactions", facts.transactions, "producer group", times)
    return _waiting(section, facts.transactions, facts.made_at, first="oldest pending", plot=plot, table=table)


def _delays(facts: Facts) -> PageSection:
    section = PageSection(name="delays", title="Delayed messages")
    plot = "Pending delayed messages by when they are due, UTC"
    table = tables.pending("Pending delayed messages", facts.delays, "kind", ("first due", "last due"))
    return _waiting(section, facts.delays, facts.made_at, first="first due", plot=plot, table=table)


def _waiting(
    section: PageSection, waiting: Pending, now: datetime, *, first: str, plot: str, table: Table
) -> PageSection:
    if not waiting.states:
        return replace(section, sentences=(f"No {section.title.lower()}.",))
    plots = ((plot, figures.pending(waiting)),) if waiting.slices else ()
    return replace(section, tiles=_tiles(waiting, first, now), plots=plots, tables=(table,))


def _tiles(waiting: Pending, first: str, now: datetime) -> tuple[Tile, ...]:
    """How many there are in each state, and when the `first` of the pending ones was or is."""
    tiles = [Tile(state.replace("_", " "), number(of)) for state, of in waiting.states.items()]
    firsts = [one.first for one in waiting.waiting if one.first is not None]
    return (*tiles, Tile(first, from_now(min(firsts), now))) if firsts else tuple(tiles)


def _incidents(facts: Facts) -> PageSection:
    found = facts.incidents
    said = "None so far." if not found.of else f"{number(found.open)} open, {number(found.of)} in all."
    return PageSection(
        name="incidents", title="Incidents", sentences=(said,), tables=(tables.incidents(found),), is_table_open=True
    )
