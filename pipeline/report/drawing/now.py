"""What the page that stays open says of this moment: what ``logtwin status`` says, in the words of a report. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pipeline.inspect.overview import Overview
from pipeline.inspect.status import moment_ago, status_facts
from pipeline.monitoring.display import age, count, duration
from pipeline.monitoring.progress import Phase, Progress
from pipeline.report.drawing.wording import STALE_AFTER_S, Headline, Level, kinds_in_words

_TOLD: Final = (
    *("committed", "acknowledged", "master holds", "lag", "until loss", "connected", "process", "unlisted"),
    *("last error", "master says"),
)
_UNKNOWN: Final = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportState:
    """The state of the report below: the number of the last one that was made, 0 if none was; it is not older than
    `since`.

    `begun_at` is when the one that is being made was begun. `error` is why the last try failed.
    """

    number: int = 0
    since: datetime | None = None
    begun_at: datetime | None = None
    error: str | None = None

    def said(self, now: datetime) -> str:
        """The state in words, for a person."""
        parts = [] if self.since is None else [f"What stands below was found {age(self.since, now)} ago."]
        which = "A new report" if parts else "The report"
        if self.begun_at is not None:
            parts.append(f"{which} is being made, for {age(self.begun_at, now)} so far.")
        elif self.error is not None:
            parts.append(f"{which} could not be made: {self.error}")
        return " ".join(parts) or "No report is made yet."


def headlines_now(seen: Overview) -> list[Headline]:
    """One a log or topic, those that need attention first."""
    order = list(Level)
    return sorted((_headline(one, seen.at) for one in seen.logs), key=lambda one: (order.index(one.level), one.log_id))


def summary_now(seen: Overview, said: Sequence[Headline]) -> tuple[Level, str]:
    """All that is `said` in one sentence, the worst first."""
    levels = Counter(one.level for one in said)
    what = kinds_in_words({one.unit == "offsets" for one in seen.logs})
    of = count(len(said), *what)
    if not said:
        return Level.UNSEEN, "The configuration has no logs yet."
    if bad := levels[Level.BAD]:
        return Level.BAD, f"{bad:,} of {of} {'needs' if bad == 1 else 'need'} attention."
    if stale := levels[Level.STALE]:
        which = f"The {what[0]}" if len(said) == 1 else f"{stale:,} of {of}"
        how = "waits, is late, or has no job" if stale == 1 else "wait, are late, or have no job"
        return Level.STALE, f"{which} {how}."
    if unseen := levels[Level.UNSEEN]:
        return Level.UNSEEN, f"{unseen:,} of {of} {'has' if unseen == 1 else 'have'} not begun."
    return Level.GOOD, f"The {what[0]} is replicated." if len(said) == 1 else f"All {of} are replicated."


def _headline(one: Progress, now: datetime) -> Headline:
    level, sentence = _state(one, now)
    if one.master_error is not None and level is Level.GOOD:
        level = Level.STALE
    facts = status_facts(one, now)
    told = {name: facts[name] for name in _TOLD if facts.get(name, _UNKNOWN) != _UNKNOWN}
    if one.last_error is not None and one.last_error in sentence:
        told.pop("last error", None)
    return Headline(one.log_id, level, sentence, tuple(_told(name, text) for name, text in told.items()))


def _told(name: str, text: str) -> str:
    return f"{name.capitalize()}: {text.removesuffix('.')}."


def _state(one: Progress, now: datetime) -> tuple[Level, str]:
    ended = moment_ago(one.updated_at, now)
    if one.phase is None:
        nothing = (Level.UNSEEN, "Nothing of it is replicated yet.")
        return nothing if one.position is None else (Level.STALE, "No job is known that replicates it.")
    if one.phase is Phase.FAILED:
        return Level.BAD, f"The job failed {ended}: {one.last_error or 'it says nothing of why'}"
    if not one.running:
        return _ended(one, ended, now)
    if one.phase is Phase.WAITING:
        return Level.STALE, f"The job waits: {one.last_error or 'its master is away'}"
    if one.phase is Phase.STARTING:
        return Level.UNSEEN, "The job starts."
    if (one.lag_s or 0.0) > STALE_AFTER_S:
        return Level.STALE, f"It is {duration(one.lag_s)} behind its master."
    behind = f", {duration(one.lag_s)} behind its master" if one.lag_s else ""
    return Level.GOOD, f"Replicated{behind}."


def _ended(one: Progress, ended: str, now: datetime) -> tuple[Level, str]:
    if one.phase is not Phase.DONE:
        how = "stopped" if one.phase is Phase.STOPPED else "was last seen"
        return Level.STALE, f"Nobody replicates it: the job {how} {ended}."
    is_new = one.updated_at is not None and _age_s(one.updated_at, now) <= STALE_AFTER_S
    return Level.GOOD if is_new else Level.STALE, f"The job came to the end of the log {ended}."


def _age_s(iso: str, now: datetime) -> float:
    return (now - datetime.fromisoformat(iso)).total_seconds()
