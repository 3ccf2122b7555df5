"""What a report says, as values: between the queries that find it out and the page that shows it. Pure.

Times are aware datetimes. What is shortened to its most important rows says of how many.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """One log. `begin` is the least offset that the replica ever held, `complete_to` where it is first not whole.

    What a record waited is the time from its store by the master to its commit by the live job: by commit, the oldest
    record of each, and of the newest commit its newest record. None where there was no message, or no live job.
    """

    log_id: str
    records: int
    bytes: int
    begin: int
    end: int
    complete_to: int | None
    complete_through: datetime | None
    open_incidents: int
    oldest_stored: datetime | None
    newest_stored: datetime | None
    last_committed: datetime | None
    newest_waited_s: float | None
    waited_p50_s: float | None
    waited_p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What the last job of a log or topic said: `at` is when. `phase` is its own word, `lag_s` how far it is behind."""

    subject: str
    is_live: bool
    phase: str
    at: datetime
    lag_s: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """What was committed in the time from `at` to the next one, of a log or a topic.

    `log_id` is None for all logs that are not named.
    """

    log_id: str | None
    at: datetime
    records: int
    bytes: int
    waited_p50_s: float | None
    waited_p99_s: float | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Commits by equal spans of time; spans without any are left out."""

    width_s: float
    commits: tuple[Commits, ...] = ()


class Flaw(Enum):
    """Why a range of a log is not as it should be. The value is what people read."""

    MISSING = "missing"
    DOUBTFUL = "open incident"
    ACCEPTED = "missing, accepted"
    DELETED = "deleted by retention"

    @property
    def is_alarming(self) -> bool:
        """Whether somebody has to do something about it."""
        return self in (Flaw.MISSING, Flaw.DOUBTFUL)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlawedRange:
    """A range of a log, half-open, and the master's times around it; None where there is no message to tell.

    `all_of_log` and `units_of_log` count the ranges of the log with this flaw, and their offsets: the largest are here.
    """

    log_id: str
    flaw: Flaw
    start: int
    end: int
    stored_after: datetime | None
    stored_before: datetime | None
    why: str | None
    all_of_log: int
    units_of_log: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    topic: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TopTopics:
    """The topics with the most messages, of so many topics with so many messages and bytes of bodies."""

    topics: tuple[TopicFacts, ...] = ()
    of: int = 0
    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """A consumer group in a topic of a log: all its queues together, the slowest for the time.

    Of a topic of Kafka these are its partitions, and offsets for messages; None where not all of them are known.
    """

    log_id: str
    consumer_group: str
    topic: str
    queues: int
    messages_behind: int | None
    seconds_behind: float | None


@dataclass(frozen=True, slots=True)
class SlowestGroups:
    """The groups that are furthest behind, the worst first; `of` counts all, `behind` those that are behind."""

    groups: tuple[GroupLag, ...] = ()
    of: int = 0
    behind: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What waits in one place: `source` is a producer group, or the kind of delay. Times as `Pending` says."""

    log_id: str
    source: str
    topic: str
    count: int
    first: datetime | None
    last: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """How many of what waits have their time in the span that starts at `at`."""

    at: datetime
    count: int
    is_late: bool


@dataclass(frozen=True, slots=True)
class Pending:
    """Transactions by when they were prepared, or delayed messages by when they are due.

    `states` counts all there ever were; `waiting` are the places where the oldest wait, `places` counts these.
    """

    states: dict[str, int] = field(default_factory=dict)
    width_s: float = 1.0
    slices: tuple[Slice, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    places: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentFacts:
    log_id: str
    id: str
    condition: str
    start: int
    end: int
    cause: str
    action: str
    detected_at: datetime | None
    state: str
    note: str | None


@dataclass(frozen=True, slots=True)
class Incidents:
    """The open ones first, then the newest; `of` counts all, `open` the open ones."""

    incidents: tuple[IncidentFacts, ...] = ()
    of: int = 0
    open: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """Of the newest history of a log: its master began to write at `start`. `master` is None where nobody knows."""

    log_id: str
    number: int
    start: int
    master: str | None
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedFacts:
    """A typed table: `rows` and `unfit` are None before it is made. `behind` of its `logs` hold more than it tells of.

    Nothing that its logs hold is missing from it up to `complete_through`; None where nobody knows.
    """

    name: str
    rows: int | None
    unfit: int | None
    columns: int
    logs: int
    behind: int
    complete_through: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A replica when it was asked. `unseen` are logs of the configuration that nothing was replicated of.

    `runs` has the last job of each log or topic of which one is known. `has_metadata`: whether anybody has fetched who
    consumes.
    """

    warehouse: str
    version: int
    made_at: datetime
    logs: tuple[LogFacts, ...] = ()
    unseen: tuple[str, ...] = ()
    timeline: Timeline = Timeline(1.0)
    flaws: tuple[FlawedRange, ...] = ()
    topics: TopTopics = TopTopics()
    groups: SlowestGroups = SlowestGroups()
    transactions: Pending = Pending()
    delays: Pending = Pending()
    incidents: Incidents = Incidents()
    elections: tuple[Election, ...] = ()
    tables: tuple[TypedFacts, ...] = ()
    runs: tuple[RunFacts, ...] = ()
    has_metadata: bool = False
