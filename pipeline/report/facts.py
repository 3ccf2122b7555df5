"""The facts of a report: the values between the queries that find them and the page that shows them. Pure.

Times are aware datetimes. A list that was shortened to its most important rows says how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from pipeline.inspect.typed_status import TypedStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """One log. `begin` is the lowest offset that the replica ever held, `complete_to` where its first gap begins.

    The time that a record waited is that from its storing by the master to its commit by the live job. The percentiles
    are over the oldest record of each commit; `newest_waited_s` is of the newest record of the newest commit. None if
    there was no message, or no live job.
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
    """What the last job of a log or topic published at the time `at`: its phase, and how far it is behind."""

    subject: str
    is_live: bool
    phase: str
    at: datetime
    lag_s: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """What was committed for a log or a topic in the time span that starts at `at`.

    `log_id` is None for all logs that are not named, together.
    """

    log_id: str | None
    at: datetime
    records: int
    bytes: int
    waited_p50_s: float | None
    waited_p99_s: float | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Commits in equal spans of time; spans without commits are left out."""

    width_s: float
    commits: tuple[Commits, ...] = ()


class Flaw(Enum):
    """Why a range of a log is not as it should be. The value is the text in the report."""

    MISSING = "missing"
    DOUBTFUL = "open incident"
    ACCEPTED = "missing, accepted"
    DELETED = "deleted by retention"

    @property
    def is_alarming(self) -> bool:
        """Whether an operator has to do something about it."""
        return self in (Flaw.MISSING, Flaw.DOUBTFUL)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlawedRange:
    """A half-open range of a log, and the master's times around it; None if no message has such a time.

    Only the largest ranges are listed. `all_of_log` counts all ranges of the log with this flaw, `units_of_log` their
    offsets.
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
    """A topic, with how many messages it has and the bytes of their bodies."""

    topic: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TopTopics:
    """The topics with the most messages. `of`, `messages` and `bytes` (of bodies) count all topics."""

    topics: tuple[TopicFacts, ...] = ()
    of: int = 0
    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """The lag of a consumer group in a topic of a log: messages over all queues, seconds of the slowest queue.

    For a Kafka topic the queues are its partitions, and messages are offsets; None if not all of them are known.
    """

    log_id: str
    consumer_group: str
    topic: str
    queues: int
    messages_behind: int | None
    seconds_behind: float | None


@dataclass(frozen=True, slots=True)
class SlowestGroups:
    """The groups that are furthest behind, worst first. `of` counts all groups, `behind` those that are behind."""

    groups: tuple[GroupLag, ...] = ()
    of: int = 0
    behind: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What waits in one place: `source` is a producer group, or the kind of delay. For times see `Pending`."""

    log_id: str
    source: str
    topic: str
    count: int
    first: datetime | None
    last: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """How many waiting messages have their time in the span that starts at `at`."""

    at: datetime
    count: int
    is_late: bool


@dataclass(frozen=True, slots=True)
class Pending:
    """Transactions by when they were prepared, or delayed messages by when they are due.

    `states` counts all there ever were. `waiting` lists the places where the oldest wait; `places` counts all places.
    """

    states: dict[str, int] = field(default_factory=dict)
    width_s: float = 1.0
    slices: tuple[Slice, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    places: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentFacts:
    """An incident, as the table `incidents` has it."""

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
class ReportedIncidents:
    """Incidents, the open ones first, then the newest; `of` counts all, `open` the open ones."""

    incidents: tuple[IncidentFacts, ...] = ()
    of: int = 0
    open: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """An election of a log's newest history: the master began to write at `start`. `master` is None if unknown."""

    log_id: str
    number: int
    start: int
    master: str | None
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts of a replica at one moment. `unseen` are logs of the configuration with nothing replicated,
    `unconfigured` those that are replicated and not in it.

    `runs` has the last job of each log or topic, if one is known. `upkeep` says in words when the tables were last
    looked after. `has_metadata`: whether consumer offsets were ever fetched.
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
    incidents: ReportedIncidents = ReportedIncidents()
    elections: tuple[Election, ...] = ()
    tables: tuple[TypedStatus, ...] = ()
    runs: tuple[RunFacts, ...] = ()
    upkeep: str | None = None
    has_metadata: bool = False
    unconfigured: tuple[str, ...] = ()
