"""The state of a log in plain words, and numbers and times as `pipeline.monitoring.display` has them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from itertools import groupby
from typing import Final

from pipeline.monitoring.display import age, count, duration, extent, moment, number
from pipeline.monitoring.progress import Phase
from pipeline.report.facts import Facts, Flaw, FlawedRange, LogFacts, ReportSubject, RunFacts, subject_of, subjects
from sources.offsets import LogId

STALE_AFTER_S: Final = 3600.0
"""A replica that nobody has brought on for so long is not called complete without saying so: a scheduler's runs come
every hour or so."""


class Level(Enum):
    """How a log stands; the order is that of alarm. The value names it in the page's style."""

    BAD = "bad"
    STALE = "stale"
    UNSEEN = "unseen"
    GOOD = "good"


@dataclass(frozen=True, slots=True)
class Headline:
    """A log or topic in plain words: what matters most first. `parts` are a topic's partitions, the bad ones first."""

    log_id: str
    level: Level
    sentence: str
    details: tuple[str, ...] = ()
    parts: tuple[Headline, ...] = ()


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
    """All logs in one sentence, the worst first. What is complete and old is not said to be complete."""
    said = headlines(facts)
    found = subjects(facts.logs)
    what = kinds_in_words({one.is_topic for one in found})
    bad = sum(one.level is Level.BAD for one in said)
    stale = [one for one in said if one.level is Level.STALE]
    if not found:
        return Level.UNSEEN, "Nothing is replicated yet."
    if bad:
        return Level.BAD, f"{bad:,} of {count(len(found), *what)} {'needs' if bad == 1 else 'need'} attention."
    if stale:
        return Level.STALE, _old(facts, stale, what)
    unseen = sum(one.level is Level.UNSEEN for one in said)
    if unseen:
        complete = f"{count(len(found), *what)} {'is' if len(found) == 1 else 'are'} complete"
        return Level.UNSEEN, f"{complete}; nothing is replicated yet of {unseen:,}."
    if len(found) == 1:
        return Level.GOOD, f"The {what[0]} is complete."
    return Level.GOOD, f"All {len(found):,} {what[1]} are complete."


def kinds_in_words(are_topics: set[bool]) -> tuple[str, str]:
    """The nouns for one and for several, of which some, all or none are topics."""
    if are_topics == {True, False}:
        return "log or topic", "logs and topics"
    return ("topic", "topics") if are_topics == {True} else ("log", "logs")


def _old(facts: Facts, stale: Sequence[Headline], what: tuple[str, str]) -> str:
    of = len(subjects(facts.logs))
    if of == 1:
        return f"The {what[0]} may have gone on: {stale[0].sentence[0].lower()}{stale[0].sentence[1:]}"
    return (
        f"{len(stale):,} of {count(of, *what)} {'is' if len(stale) == 1 else 'are'} not replicated any more, or late."
    )


def headlines(facts: Facts) -> list[Headline]:
    """One a log or topic, those that need attention first."""
    flaws = {log_id: list(rows) for log_id, rows in groupby(facts.flaws, key=lambda one: one.log_id)}
    runs = {one.subject: one for one in facts.runs}
    found = subjects(facts.logs)
    unseen: dict[str, list[Headline]] = {}
    for log_id in facts.unseen:
        unseen.setdefault(subject_of(log_id), []).append(_unseen(log_id))
    seen = [
        _aged(_of_subject(one, flaws, facts.made_at, unseen.pop(one.name, [])), one, runs.get(one.name), facts.made_at)
        for one in found
    ]
    order = list(Level)
    return sorted([*seen, *map(_unseen, unseen)], key=lambda one: (order.index(one.level), one.log_id))


def _unseen(name: str) -> Headline:
    return Headline(name, Level.UNSEEN, "Nothing of it is replicated yet.")


def _of_subject(
    subject: ReportSubject, flaws: Mapping[str, list[FlawedRange]], now: datetime, unseen: Sequence[Headline]
) -> Headline:
    """`unseen` are partitions of it that nothing is there of."""
    parts = tuple(_headline(one, flaws.get(one.log_id, []), now) for one in subject.logs)
    if not subject.is_topic:
        return parts[0]
    whole, bad = subject.whole, [one for one in parts if one.level is Level.BAD]
    of = count(len(parts), "partition")
    if bad:
        sentence = f"{len(bad):,} of {of} {'needs' if len(bad) == 1 else 'need'} attention."
    else:
        are = "is" if len(parts) == 1 else "are"
        sentence = f"{of} {are} complete, {count(whole.records, 'record')}."
    level = Level.BAD if bad else Level.GOOD
    details = [_lag(whole, now)]
    if unseen:
        details.append(f"Nothing is replicated yet of {count(len(unseen), 'more partition')}.")
    return Headline(
        subject.name, level, sentence, tuple(details), (*bad, *(one for one in parts if one not in bad), *unseen)
    )


def _aged(said: Headline, subject: ReportSubject, run: RunFacts | None, now: datetime) -> Headline:
    """Put the age first if what is complete is old: that is no good news."""
    old = _staleness(run, subject.whole.last_committed, now)
    if old is None:
        return said
    level = Level.STALE if said.level is Level.GOOD else said.level
    if said.level is Level.GOOD:
        return replace(said, level=level, sentence=old, details=(said.sentence, *said.details))
    return replace(said, details=(old, *said.details))


def _staleness(run: RunFacts | None, last_committed: datetime | None, now: datetime) -> str | None:
    """Why the replica may not be what the master is by now; None where it is at most STALE_AFTER_S behind."""
    if run is not None and run.is_live:
        if run.phase == Phase.WAITING.value:
            return f"The job waits: {run.error or 'its master is away'}"
        if (run.lag_s or 0.0) > STALE_AFTER_S:
            return f"It is {duration(run.lag_s)} behind its master."
        return None
    if run is not None and run.phase == Phase.FAILED.value:
        return f"The last job failed: {run.error or 'it says nothing of why'}"
    at = last_committed if run is None else run.at
    age_s = 0.0 if at is None else (now - at).total_seconds()
    if at is None or age_s <= STALE_AFTER_S:
        return None
    return f"Nobody replicates it since {moment(at)}, {duration(age_s)} before this report."


def _headline(log: LogFacts, flaws: list[FlawedRange], now: datetime) -> Headline:
    by_flaw = {one.flaw: one for one in reversed(flaws)}
    missing = by_flaw.get(Flaw.MISSING)
    is_bad = missing is not None or log.open_incidents > 0
    stored = "" if log.complete_through is None else f", stored {moment(log.complete_through)}"
    through = f"offset {number(log.complete_to)}{stored}"
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


def _lag(log: LogFacts, now: datetime) -> str:
    if log.last_committed is None:
        return "No commit yet."
    committed = f"Last commit {age(log.last_committed, now)} before this report"
    if log.newest_waited_s is None:
        return f"{committed}."
    return f"{committed}; its newest record was then {span(log.newest_waited_s)} old."


def _accepted(log: LogFacts, by_flaw: dict[Flaw, FlawedRange]) -> list[str]:
    """Ranges that are missing, but no alarm."""
    said = []
    if (accepted := by_flaw.get(Flaw.ACCEPTED)) is not None:
        size = extent_of(log.log_id, accepted.units_of_log)
        said.append(f"{count(accepted.all_of_log, 'gap')}, {size}, accepted as lost.")
    if (deleted := by_flaw.get(Flaw.DELETED)) is not None:
        said.append(f"{extent_of(log.log_id, deleted.units_of_log)} deleted by retention.")
    return said
