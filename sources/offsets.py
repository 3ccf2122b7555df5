"""Offsets, half-open ranges of them, log ids, positions of replicas. The only definition of "next".

An offset has one meaning in logtwin: **the next thing to read**. For RocketMQ that is a byte of the commit log, for
dister an entry id, for Kafka an offset of a partition: `LogId.unit` says which. A range is half-open, ``[start, end)``:
it holds ``start`` but not ``end``, so two ranges join exactly when the end of one is the start of the next. A range
**owns** the records that start in it; the last of them may reach past ``end``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, Literal, NewType, TypeVar, get_args

Offset = NewType("Offset", int)
"""The next thing to read, at or above 0. RocketMQ: a byte of the commit log; dister: an entry id; Kafka: an offset."""

END: Final = Offset(2**63 - 1)
"""An offset above every offset of any log."""

T = TypeVar("T")
Unit = Literal["bytes", "ids", "offsets"]
UNITS: Final[tuple[Unit, ...]] = get_args(Unit)

_UNIT_OF: Final[dict[str, Unit]] = {"rocketmq": "bytes", "kafka": "offsets", "dister": "ids"}
KINDS = tuple(_UNIT_OF)
# A part never starts with a dot: log ids also name folders.
_PART = r"[A-Za-z0-9%|_-][A-Za-z0-9%|_.-]*"
LOG_ID_FORM = (
    "rocketmq/<broker name>, kafka/<cluster>/<topic> or dister/<group>, of letters, digits, %, |, _, - and . "
    "alone, no name with a . in front: rocketmq/broker-a"
)
"""What a log id looks like, for errors."""
_LOG_ID = re.compile(rf"(?P<kind>[a-z]+)/(?P<name>{_PART}(/{_PART})*)")


def packed(kind: type[T]) -> type[T]:
    """Let values of the dataclass `kind`, which has several fields and no subclasses, be pickled fast.

    For what passes between processes by the thousand: a frozen dataclass with slots is otherwise pickled by loops in
    Python over its fields, which takes three times as long.
    """
    values = attrgetter(*(one.name for one in fields(kind)))  # type: ignore[arg-type] # it is a dataclass

    def reduced(self: T) -> tuple[type[T], tuple[Any, ...]]:
        return kind, values(self)

    kind.__reduce__ = reduced  # type: ignore[assignment]
    return kind


@packed
@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Half-open range ``[start, end)`` of one log. Raises ValueError unless ``0 <= start <= end``."""

    start: Offset
    end: Offset

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a range of offsets: [{self.start}, {self.end})")

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and self.start <= offset < self.end

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"

    @property
    def size(self) -> int:
        """How many offsets it holds: bytes if the log counts bytes, else ids, most of which may be unused."""
        return self.end - self.start

    @property
    def is_empty(self) -> bool:
        return self.start == self.end

    def holds(self, other: OffsetRange) -> bool:
        return self.start <= other.start and other.end <= self.end

    def overlaps(self, other: OffsetRange) -> bool:
        """Whether both have an offset in common; false if either is empty."""
        return self.start < other.end and other.start < self.end

    def starting_at(self, start: Offset) -> OffsetRange:
        """Return the part at or after `start`; empty, at `end`, if nothing is left."""
        return OffsetRange(Offset(min(max(self.start, start), self.end)), self.end)

    def in_pieces(self, size: int) -> tuple[OffsetRange, ...]:
        """Cut into consecutive pieces of `size` offsets, the last one shorter; an empty range has none."""
        if size < 1:
            raise ValueError(f"a piece of {size} offsets")
        starts = range(self.start, self.end, size)
        return tuple(OffsetRange(Offset(at), Offset(min(at + size, self.end))) for at in starts)


@dataclass(frozen=True, slots=True, order=True)
class LogId:
    """The name of a log: ``rocketmq/<broker name>``, ``kafka/<cluster>/<topic>/<partition>``, ``dister/<group>``."""

    kind: str
    name: str

    @classmethod
    def parse(cls, text: str) -> LogId:
        """Parse ``"rocketmq/broker-a"``. Raises ValueError saying what a log id looks like."""
        match = _LOG_ID.fullmatch(text)
        if match is None or match["kind"] not in KINDS:
            raise ValueError(f"{text!r} is no log id: {LOG_ID_FORM}")
        return cls(match["kind"], match["name"])

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def has_partitions(self) -> bool:
        """Whether it names no log, but a topic, whose partitions are logs."""
        return self.kind == "kafka" and self.name.count("/") == 1

    @property
    def master(self) -> LogId:
        """The id of the master that has the log (`sources.master.Master.id`): a partition's topic, else its own."""
        return topic_and_number(self)[0] if self.kind == "kafka" and not self.has_partitions else self

    @property
    def unit(self) -> Unit:
        """What an offset of the log counts. Some or most ids and Kafka offsets have no record."""
        return _UNIT_OF[self.kind]

    @property
    def counts_bytes(self) -> bool:
        """Whether an offset of the log is a byte of it. Otherwise the distance of two offsets is not a size."""
        return self.unit == "bytes"


@dataclass(frozen=True, slots=True)
class Position:
    """How far the replica of one log is complete: everything of `epoch` below `offset` is committed.

    `epoch` counts the histories of the log. It grows when the master's log is found rewritten, because a Delta
    transaction version can only grow while a repair has to move the position back.
    """

    log_id: LogId
    epoch: int
    offset: Offset

    @property
    def app_id(self) -> str:
        """The Delta application id whose transaction version equals `offset`."""
        return f"logtwin/{self.log_id}@{self.epoch}"


@lru_cache(maxsize=1 << 16)
def partition_log(topic: LogId, number: int) -> LogId:
    """Return the id of a topic's partition. Asked for again and again, and checked once."""
    return LogId(topic.kind, f"{topic.name}/{number}")


@lru_cache(maxsize=1 << 16)
def topic_and_number(partition: LogId) -> tuple[LogId, int]:
    """Return a partition's topic and number: the inverse of `partition_log`."""
    topic, _, number = partition.name.rpartition("/")
    return LogId(partition.kind, topic), int(number)
