"""The contract of a topic, whose partitions are logs that are acknowledged together, and the schema of its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from sources.errors import LogtwinError
from sources.master import TIMESTAMP, SessionState
from sources.offsets import LogId, Offset

HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])


def _field(name: str, kind: pa.DataType, comment: str) -> pa.Field:
    return pa.field(name, kind, metadata={"comment": comment})


KAFKA_SCHEMA: Final = pa.schema(
    [
        _field("offset", pa.int64(), "offset of the record in its partition; compaction and transactions leave gaps"),
        _field("leader_epoch", pa.int32(), "epoch of the leader that wrote it; null where the batch has none"),
        _field("topic", pa.string(), "topic"),
        _field("partition", pa.int32(), "partition of the topic"),
        _field(
            "timestamp", TIMESTAMP, "as timestamp_type says; null where there is none, and outside the years 1 to 9999"
        ),
        _field(
            "timestamp_type",
            pa.string(),
            "create_time (the producer's clock) or log_append_time (the broker's), and the ms if timestamp lacks them",
        ),
        _field("key", pa.binary(), "key; null of a record without one, which is not an empty one"),
        _field("value", pa.binary(), "value; null of a tombstone, which is not an empty one"),
        _field("headers", pa.list_(HEADER), "headers in their order, keys may repeat; a value may be null"),
    ]
)
"""Columns of one record of a topic, in table order. This is the only definition; tables and data source use it."""


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """How far a partition was read: the next offset, and the leader epoch of the records before it, if known."""

    offset: Offset
    leader_epoch: int | None


class TopicSession(Protocol):
    """The acknowledging side, open as long as the job runs."""

    @property
    def acknowledged(self) -> Mapping[int, Offset]:
        """The last offset of each partition that the master has confirmed in this session."""

    @property
    def state(self) -> SessionState:
        """The current state; its `acknowledged` is the sum over the partitions, None before the first promise."""

    @property
    def failure(self) -> LogtwinError | None:
        """An error that no retry can help: somebody else acknowledges in our name. The topic must then end."""

    def acknowledge(self, positions: Mapping[int, PartitionPosition]) -> None:
        """Promise the master that everything below `positions` is durable here; the caller has committed it.

        Never blocks the job if the master is away: the newest promise is repeated until it gets through.
        """

    def close(self) -> None:
        """Try for a moment to get the newest promise through, then end. Idempotent."""


def partition_log(topic: LogId, number: int) -> LogId:
    """Return the log id of one of the topic's partitions."""
    return LogId(topic.kind, f"{topic.name}/{number}")


def topic_and_number(partition: LogId) -> tuple[LogId, int]:
    """Return a partition's topic and number: the inverse of `partition_log`."""
    topic, _, number = partition.name.rpartition("/")
    return LogId(partition.kind, topic), int(number)
