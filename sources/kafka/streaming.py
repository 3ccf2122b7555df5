"""A Kafka topic as Spark's data source ``logtwin`` reads it: all its partitions, as a stream or a batch.

What must hold: each record that a batch covers comes once, from the very topic that the checkpoint names. This rests
only on Spark, which keeps a position for each partition and plans a batch again from two of them; a reader remembers
only what it can afford to forget. Leader epochs are not kept in the checkpoint: a log that was cut below a position is
noticed if it still ends below that, or inside a task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from sources.bounds import EARLIEST
from sources.errors import told_by_spark
from sources.kafka.log import KafkaLog
from sources.kafka.options import TopicOptions
from sources.kafka.topic import KafkaTopic, open_topic
from sources.kafka.topic_offsets import TopicBounds, TopicOffsets
from sources.master import Known
from sources.offsets import OffsetRange
from sources.reading import rows_of
from sources.record_source import RecordSource
from sources.records import KAFKA_SCHEMA

TOPIC_SCHEMA = pa.schema([pa.field("log_id", pa.string()), *KAFKA_SCHEMA])


@dataclass(frozen=True)
class TopicSplit(InputPartition):
    """The part of a partition that one task reads."""

    log: KafkaLog
    owned: OffsetRange


def topic_source(given: Mapping[str, str]) -> RecordSource:
    """Make the source from the options of the data source. Raises ConfigurationError."""
    options = TopicOptions.of(given)
    topic = open_topic(options)
    return RecordSource(
        TOPIC_SCHEMA, partial(TopicBatchReader, topic, options), partial(TopicStreamReader, topic, options)
    )


class TopicBatchReader(DataSourceReader):
    """The reader of ``spark.read``: what the topic holds when the read is planned."""

    def __init__(self, topic: KafkaTopic, options: TopicOptions) -> None:
        self._topic = topic
        self._options = options

    @told_by_spark()
    def partitions(self) -> Sequence[InputPartition]:
        start, bounds = _start(self._topic, self._options)
        return _splits(self._topic, start, bounds.latest)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _records(partition)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of ``spark.readStream``: offsets are those of `TopicOffsets.to_json`."""

    def __init__(self, topic: KafkaTopic, options: TopicOptions) -> None:
        self._topic = topic
        self._options = options
        self._newest: TopicOffsets | None = None
        self._last_wanted: TopicOffsets | None = None

    @told_by_spark()
    def initialOffset(self) -> dict[str, Any]:
        return _start(self._topic, self._options)[0].to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_offsets_per_trigger)

    @told_by_spark()
    def prepareForTriggerAvailableNow(self) -> None:
        self._last_wanted = self._topic.bounds().latest

    @told_by_spark()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        at = TopicOffsets.from_json(start)
        self._newest = ends = _held_from(self._topic, at).latest
        if self._last_wanted is not None:
            ends = ends.up_to(self._last_wanted)
        return at.advanced(ends, self._most(limit)).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._newest is None else self._newest.to_json()

    @told_by_spark()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return _splits(self._topic, TopicOffsets.from_json(start), TopicOffsets.from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _records(partition)

    def _most(self, limit: ReadLimit) -> int | None:
        if isinstance(limit, ReadAllAvailable):
            return None
        return limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_offsets_per_trigger


def _start(topic: KafkaTopic, options: TopicOptions) -> tuple[TopicOffsets, TopicBounds]:
    """Return where reading starts in every existing partition, and what the topic holds."""
    given = options.starting_positions
    if given is not None:
        bounds = _held_from(topic, given)
        return TopicOffsets(given.topic_id, {number: given.at(number) for number in bounds.held}), bounds
    bounds = topic.bounds()
    return bounds.earliest if options.starting_offset == EARLIEST else bounds.latest, bounds


def _held_from(topic: KafkaTopic, at: TopicOffsets) -> TopicBounds:
    """Return what the topic holds. Raises an error if reading cannot go on from `at`."""
    bounds = topic.bounds(at.topic_id)
    at.check_held(bounds, topic.id)
    return bounds


def _splits(topic: KafkaTopic, start: TopicOffsets, end: TopicOffsets) -> list[TopicSplit]:
    """Return at least one split, which may be empty: given none, Spark makes up a partition of its own."""
    known = Known(str(end.topic_id))
    wanted = [(KafkaLog(topic=topic, number=number, known=known), it) for number, it in end.since(start).items()]
    pieces = [TopicSplit(log, piece) for log, batch in wanted for piece in log.plan(batch)]
    return pieces or [TopicSplit(*wanted[0])]


def _records(split: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(split, TopicSplit):
        raise TypeError(f"not a split of this source: {split!r}")
    with told_by_spark():
        yield from rows_of(split.log, split.owned, boundary=True, schema=TOPIC_SCHEMA)
