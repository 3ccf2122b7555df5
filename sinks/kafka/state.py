"""What table ``kafka_log`` says of one topic: where each partition stands, who writes it, what its newest commit owes.

JSON in the domain metadata ``logtwin.kafka/<cluster>/<topic>``, rewritten by every commit of that topic:

    topic_id        the topic that is meant, by its id: one that was created again is another
    commits         how many commits of data there were. It equals the transaction version of ``logtwin/<topic's log
                    id>``, written in the same commit: a count only grows, whatever partitions come or go back
    partitions      of each partition that has one its position: epoch, offset, leader_epoch; `first`, where its replica
                    begins; `holes`, what below the position is not in the table
    writer, commit  the run that owns the topic, and a random id of the commit, by which its maker knows it again
    ledger, incidents
                    what the newest commit of data owes to other tables, by partition

All partitions stand in one domain, because they move in one commit: there is nothing that a crash could leave between
the position of one and that of another.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Generic, Self, TypeVar

from sinks.holes import joined
from sinks.incidents import Incident
from sinks.ledger import LedgerRow
from sinks.log_state import Writer
from sources.master_topic import PartitionPosition
from sources.offsets import Offset, OffsetRange

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Up to where one partition is replicated. `holes` are in order, apart from each other, none empty."""

    epoch: int = 0
    offset: Offset
    leader_epoch: int | None
    first: Offset
    holes: tuple[OffsetRange, ...] = ()

    @property
    def position(self) -> PartitionPosition:
        return PartitionPosition(self.offset, self.leader_epoch)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "holes": [[hole.start, hole.end] for hole in self.holes]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `as_dict`. Raises KeyError, TypeError or ValueError for what it did not give."""
        holes = tuple(OffsetRange(Offset(start), Offset(end)) for start, end in values["holes"])
        return cls(**{**values, "holes": holes})


ADDED_LATER: Final = PartitionState(offset=Offset(0), leader_epoch=None, first=Offset(0))


@dataclass(frozen=True, slots=True)
class Of(Generic[T]):
    """`one` of a partition."""

    partition: int
    one: T


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """What the table says of one topic; see the module's docstring. Without a `topic_id` nobody has begun it."""

    writer: Writer
    commit: str
    commits: int = 0
    topic_id: uuid.UUID | None = None
    partitions: Mapping[int, PartitionState] = field(default_factory=dict)
    ledger: tuple[Of[LedgerRow], ...] = ()
    incidents: tuple[Of[Incident], ...] = ()

    @classmethod
    def fresh(cls, writer: Writer) -> Self:
        """Of a topic that nobody has begun to replicate."""
        return cls(writer=writer, commit="")

    def as_json(self) -> str:
        values = {
            "writer": asdict(self.writer),
            "commit": self.commit,
            "commits": self.commits,
            "topic_id": None if self.topic_id is None else str(self.topic_id),
            "partitions": {str(number): self.partitions[number].as_dict() for number in sorted(self.partitions)},
            "ledger": [[of.partition, of.one.as_dict()] for of in self.ledger],
            "incidents": [[of.partition, of.one.as_dict()] for of in self.incidents],
        }
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `as_json`. Raises KeyError, TypeError or ValueError for what it did not write."""
        values = json.loads(text)
        topic_id = values["topic_id"]
        return cls(
            writer=Writer(**values["writer"]),
            commit=values["commit"],
            commits=values["commits"],
            topic_id=None if topic_id is None else uuid.UUID(topic_id),
            partitions={int(number): PartitionState.from_dict(one) for number, one in values["partitions"].items()},
            ledger=tuple(Of(number, LedgerRow.from_dict(one)) for number, one in values["ledger"]),
            incidents=tuple(Of(number, Incident.from_dict(one)) for number, one in values["incidents"]),
        )

    @property
    def offset(self) -> Offset | None:
        """The sum of all positions; None before the topic was begun."""
        return None if self.topic_id is None else Offset(sum(one.offset for one in self.partitions.values()))

    @property
    def positions(self) -> dict[int, PartitionPosition]:
        return {number: one.position for number, one in self.partitions.items()}

    @property
    def newest_stored_us(self) -> int | None:
        """The newest timestamp of a record of the last commit, µs since 1970, UTC."""
        stored = (of.one.last_store_timestamp for of in self.ledger)
        return max((at_us for at_us in stored if at_us is not None), default=None)

    def partition(self, number: int) -> PartitionState:
        """How it stands; one that was added to the topic later begins at 0."""
        return self.partitions.get(number, ADDED_LATER)

    def claimed_by(self, writer: Writer) -> Self:
        return replace(self, writer=writer, commit=uuid.uuid4().hex)

    def begun(self, topic_id: uuid.UUID, starts: Mapping[int, Offset]) -> Self:
        """The state of a replica that begins with the topic `topic_id`, each partition at its start."""
        states = {number: PartitionState(offset=at, leader_epoch=None, first=at) for number, at in starts.items()}
        return self._next(topic_id=topic_id, partitions=states)

    def moved_to(self, ends: Mapping[int, PartitionPosition], ledger: Sequence[Of[LedgerRow]]) -> Self:
        """The state after a commit that has led each of the partitions in `ends` there."""
        moved = {number: _at(self.partition(number), end) for number, end in ends.items()}
        return self._next(partitions={**self.partitions, **moved}, ledger=tuple(ledger))

    def without(self, number: int, incident: Incident) -> Self:
        """The state after a commit that has passed over the range of `incident`, which begins at the position."""
        before = self.partition(number)
        holes = joined([*before.holes, incident.range])
        passed = replace(before, offset=incident.end, leader_epoch=None, holes=holes)
        return self._next(partitions={**self.partitions, number: passed}, incidents=(Of(number, incident),))

    def _next(self, **changes: Any) -> Self:
        """By one more commit, which owes only what it says."""
        values = {"ledger": (), "incidents": (), **changes}
        return replace(self, commit=uuid.uuid4().hex, commits=self.commits + 1, **values)


def _at(state: PartitionState, end: PartitionPosition) -> PartitionState:
    return replace(state, offset=end.offset, leader_epoch=end.leader_epoch)
