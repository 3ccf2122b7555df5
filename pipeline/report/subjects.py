"""The subjects of a report: a log, or a Kafka topic with all its partitions, each of which is a log. Pure.

A topic may have hundreds of partitions, so the report shows one line for it, and its partitions when it is unfolded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypeVar

from pipeline.report.facts import LogFacts
from sources.offsets import LogId, topic_and_number

_TOPICS: Final = "kafka/"
_PARTS: Final = 4  # of a partition's id: kafka/<cluster>/<topic>/<number>; the id of a topic has no number

_Value = TypeVar("_Value", int, float, datetime)


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
    """`which` of the values that are known; None if none is."""
    found = [value for value in values if value is not None]
    return which(found) if found else None


def _all(
    which: Callable[[list[int]], int], logs: Sequence[LogFacts], value: Callable[[LogFacts], int | None]
) -> int | None:
    """`which` of the logs' values; None unless all are known."""
    found = [one for one in map(value, logs) if one is not None]
    return which(found) if len(found) == len(logs) else None
