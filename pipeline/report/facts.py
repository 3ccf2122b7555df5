"""The facts of a report: the values between the queries that find them and the page that shows them. Pure.

Times are aware datetimes. A list that was shortened to its most important rows says how many there are. A Kafka topic
may have hundreds of partitions, each of which is a log: the report shows one line for it, a `ReportSubject`, and its
partitions when it is unfolded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Final, TypeVar

from pipeline.inspect.typed_status import TypedStatus
from sources.offsets import LogId, topic_and_number

_TOPICS: Final = "kafka/"
_PARTS: Final = 4  # of a partition's id: kafka/<cluster>/<topic>/<number>; the id of a topic has no number
_Value = TypeVar("_Value", int, float, datetime)


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
    """The last words of the job of a log or topic, at the time `at`: its phase, and how far it is behind."""

    subject: str
    is_live: bool
    phase: str
    at: datetime
    lag_s: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """The commits of a log or a topic in the time span that starts at `at`.

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
    """Messages that wait in one queue: `source` is a producer group, or the kind of delay. For times see `Pending`."""

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


@dataclass(frozen=True, slots=True)
class ReportSubject:
    """A log or a topic. `name` is its id; `logs` are the topic's partitions, or the log alone."""

    name: str
    logs: tuple[LogFacts, ...]

    @property
    def is_topic(self) -> bool:
        return self.name.startswith(_TOPICS)

    @property
    def whole(self) -> LogFacts:
        """The subject as one log.

        Counts and offsets are sums over the partitions, as in `logtwin status`. The time up to which nothing is missing
        is that of the partition that is furthest behind, and waits are the longest; empty partitions have none.
        """
        if len(self.logs) == 1:
            return replace(self.logs[0], log_id=self.name)
        return LogFacts(
            log_id=self.name,
            records=sum(one.records for one in self.logs),
            bytes=sum(one.bytes for one in self.logs),
            begin=sum(one.begin for one in self.logs),
            end=sum(one.end for one in self.logs),
            complete_to=_all(sum, self.logs, lambda one: one.complete_to),
            complete_through=_known(min, (one.complete_through for one in self.logs)),
            open_incidents=sum(one.open_incidents for one in self.logs),
            oldest_stored=_known(min, (one.oldest_stored for one in self.logs)),
            newest_stored=_known(max, (one.newest_stored for one in self.logs)),
            last_committed=_known(max, (one.last_committed for one in self.logs)),
            newest_waited_s=_known(max, (one.newest_waited_s for one in self.logs)),
            waited_p50_s=_known(max, (one.waited_p50_s for one in self.logs)),
            waited_p99_s=_known(max, (one.waited_p99_s for one in self.logs)),
        )


def subject_of(log_id: str) -> str:
    """The id of a partition's topic; for any other log its own id."""
    if log_id.startswith(_TOPICS) and log_id.count("/") == _PARTS - 1:
        return str(topic_and_number(LogId.parse(log_id))[0])
    return log_id


def subjects(logs: Iterable[LogFacts]) -> list[ReportSubject]:
    """The subjects in the order of their first logs; partitions by number."""
    found: dict[str, list[LogFacts]] = {}
    for one in logs:
        found.setdefault(subject_of(one.log_id), []).append(one)
    return [ReportSubject(name, tuple(sorted(of, key=lambda one: _number(one.log_id)))) for name, of in found.items()]


def _number(log_id: str) -> int:
    return topic_and_number(LogId.parse(log_id))[1] if subject_of(log_id) != log_id else 0


def _known(which: Callable[[list[_Value]], _Value], values: Iterable[_Value | None]) -> _Value | None:
    """Apply `which` to the values that are known; None if none is."""
    found = [value for value in values if value is not None]
    return which(found) if found else None


def _all(
    which: Callable[[list[int]], int], logs: Sequence[LogFacts], value: Callable[[LogFacts], int | None]
) -> int | None:
    """Apply `which` to the logs' values; None unless all are known."""
    found = [one for one in map(value, logs) if one is not None]
    return which(found) if len(found) == len(logs) else None
