"""The state of a log in plain words, and numbers and times as `pipeline.monitoring.display` has them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from itertools import groupby

from pipeline.monitoring.display import duration, extent, moment, number
from pipeline.report.facts import Facts, Flaw, FlawedRange, LogFacts
from sources.offsets import LogId


class Level(Enum):
    """How a log stands; the order is that of alarm. The value names it in the page's style."""

    BAD = "bad"
    UNSEEN = "unseen"
    GOOD = "good"


@dataclass(frozen=True, slots=True)
class Headline:
    """A log in plain words: what matters most first."""

    log_id: str
    level: Level
    sentence: str
    details: tuple[str, ...] = ()


def count(value: int, what: str, several: str | None = None) -> str:
    """``1 gap``, ``2 gaps``."""
    return f"{value:,} {what if value == 1 else several or what + 's'}"


def span(seconds: float | None) -> str:
    """A span of time: short ones to the millisecond, others as everywhere."""
    if seconds is None or seconds >= 10 or (seconds >= 1 and seconds == round(seconds)):
        return duration(seconds)
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def time(at: datetime | None) -> str:
    return "–" if at is None else moment(at)


def from_now(at: datetime, now: datetime) -> str:
    """``3 min ago``, ``in 2 h``."""
    ahead_s = (at - now).total_seconds()
    return f"in {span(ahead_s)}" if ahead_s > 0 else f"{span(-ahead_s)} ago"


def extent_of(log_id: str, offsets: int) -> str:
    """How much of a log so many offsets are."""
    return extent(offsets, LogId.parse(log_id))


def summary(facts: Facts) -> tuple[Level, str]:
    """All logs in one sentence."""
    logs, bad = len(facts.logs), sum(one.level is Level.BAD for one in headlines(facts))
    if not logs:
        return Level.UNSEEN, "Nothing is replicated yet."
    if bad:
        return Level.BAD, f"{bad:,} of {count(logs, 'log')} {'needs' if bad == 1 else 'need'} attention."
    if facts.unseen:
        complete = f"{count(logs, 'log')} {'is' if logs == 1 else 'are'} complete"
        return Level.UNSEEN, f"{complete}; nothing is replicated yet of {len(facts.unseen):,}."
    return Level.GOOD, "The log is complete." if logs == 1 else f"All {logs:,} logs are complete."


def headlines(facts: Facts) -> list[Headline]:
    """One a log, those that need attention first."""
    flaws = {log_id: list(rows) for log_id, rows in groupby(facts.flaws, key=lambda one: one.log_id)}
    seen = [_headline(one, flaws.get(one.log_id, []), facts.made_at) for one in facts.logs]
    unseen = [Headline(log_id, Level.UNSEEN, "Nothing of it is replicated yet.") for log_id in facts.unseen]
    order = list(Level)
    return sorted([*seen, *unseen], key=lambda one: (order.index(one.level), one.log_id))


def _headline(log: LogFacts, flaws: list[FlawedRange], now: datetime) -> Headline:
    by_flaw = {one.flaw: one for one in reversed(flaws)}
    missing = by_flaw.get(Flaw.MISSING)
    is_bad = missing is not None or log.open_incidents > 0
    through = f"offset {number(log.complete_to)}" + _stored(log.complete_through)
    if missing is None:
        sentence = f"Complete through {through}." if log.complete_to is not None else "Nothing of it is there now."
    else:
        what = f"{count(missing.all_of_log, 'gap')}, {extent_of(log.log_id, missing.units_of_log)} missing"
        sentence = f"{what}. Complete through {through}; the log goes on to {number(log.end)}."
    details = [_lag(log, now), *_accepted(log, by_flaw)]
    if log.open_incidents:
        details.insert(0, f"{count(log.open_incidents, 'open incident')}.")
    elif missing is None and not {Flaw.ACCEPTED, Flaw.DELETED} & set(by_flaw):
        details.append("No gaps.")
    return Headline(log.log_id, Level.BAD if is_bad else Level.GOOD, sentence, tuple(details))


def _stored(at: datetime | None) -> str:
    return "" if at is None else f", stored {moment(at)}"


def _lag(log: LogFacts, now: datetime) -> str:
    if log.last_committed is None:
        return "No commit yet."
    age = f"Last commit {duration(max(0.0, (now - log.last_committed).total_seconds()))} before this report"
    if log.newest_waited_s is None:
        return f"{age}."
    return f"{age}; its newest record was then {span(log.newest_waited_s)} old."


def _accepted(log: LogFacts, by_flaw: dict[Flaw, FlawedRange]) -> list[str]:
    """What is missing and no alarm."""
    said = []
    if (accepted := by_flaw.get(Flaw.ACCEPTED)) is not None:
        size = extent_of(log.log_id, accepted.units_of_log)
        said.append(f"{count(accepted.all_of_log, 'gap')}, {size}, accepted as lost.")
    if (deleted := by_flaw.get(Flaw.DELETED)) is not None:
        said.append(f"{extent_of(log.log_id, deleted.units_of_log)} deleted by retention.")
    return said
