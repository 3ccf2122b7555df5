"""What a task does with its splits of a topic: read, write one file, report. By `mapInArrow`, as in `sinks/tasks.py`.

In comes one row for each split (RANGES_SCHEMA), of any partitions, out goes one small row for all of them
(REPORT_SCHEMA). The split that begins at a partition's position is read with the leader epoch of what lies before it,
so the broker itself says whether what comes continues what is committed.

An error that a retry can help is raised, so that Spark runs the task again; any other one travels in the report.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sinks.handshake import Append, clip, decide
from sinks.kafka.split_files import Answers, TopicFile
from sinks.kafka.split_report import Answered, TopicReport
from sinks.split_report import REPORT_SCHEMA
from sinks.tables import KAFKA_LOG, with_identity
from sources.errors import LogtwinError, ReplicaError, naming
from sources.master_topic import MasterPartition, MasterTopic, PartitionPosition
from sources.offsets import Offset, OffsetRange


@dataclass(frozen=True, slots=True)
class Held:
    """What the replica has of one partition: its history, and up to where; None: it begins where the batch does."""

    epoch: int
    position: PartitionPosition | None

    @property
    def offset(self) -> Offset | None:
        return None if self.position is None else self.position.offset

    def leader_epoch_before(self, start: Offset) -> int | None:
        """Of what is committed right before `start`, where known."""
        return self.position.leader_epoch if self.position is not None and self.position.offset == start else None


@dataclass(frozen=True, slots=True, order=True)
class _Split:
    partition: int
    range: OffsetRange
    batch: OffsetRange


@dataclass(frozen=True, slots=True)
class TopicWriter:
    """The task function: everything it needs, picklable. `held` is the driver's, for the same handshake.

    `default` is what is held of a partition that `held` does not name.
    """

    topic: MasterTopic
    topic_id: uuid.UUID
    held: Mapping[int, Held]
    default: Held
    warehouse: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """`mapInArrow`'s shape: RANGES_SCHEMA in, REPORT_SCHEMA out."""
        rows = [row for batch in batches for row in batch.to_pylist()]
        if rows:
            yield pa.RecordBatch.from_pylist([{"report": self._report(rows).as_json()}], schema=REPORT_SCHEMA)

    def _report(self, rows: Iterable[dict[str, Any]]) -> TopicReport:
        try:
            return self._write(sorted(map(self._split, rows)))
        except LogtwinError as error:
            named = error.at(self.topic.log_id)
            if named.is_transient:
                raise RuntimeError(named.token()) from error
            return TopicReport(log_id=self.topic.log_id, error=named)

    def _split(self, row: dict[str, Any]) -> _Split:
        topic, _, partition = row["log_id"].rpartition("/")
        if topic != str(self.topic.log_id) or not partition.isdecimal():
            raise ReplicaError("a batch of another topic", expected=f"{self.topic.log_id}/…", found=row["log_id"])
        split, batch = (OffsetRange(row[f"{name}_start"], row[f"{name}_end"]) for name in ("split", "batch"))
        return _Split(int(partition), split, batch)

    def _write(self, splits: Sequence[_Split]) -> TopicReport:
        batches = dict.fromkeys((split.partition, split.batch) for split in splits)
        with TopicFile(self.warehouse) as file:
            answered = [one for split in splits if (one := self._write_split(split, file)) is not None]
            return TopicReport(
                log_id=self.topic.log_id, batches=tuple(batches), answered=tuple(answered), file=file.finish()
            )

    def _write_split(self, split: _Split, file: TopicFile) -> Answered | None:
        """Read and write what the position leaves of `split`; None where that is nothing."""
        held = self.held.get(split.partition, self.default)
        partition = self.topic.partition(split.partition, self.topic_id)
        with naming(partition.log_id):
            decision = decide(held.offset, split.batch)
            if not isinstance(decision, Append):
                return None
            owned = clip(split.range, decision.range)
            return None if owned.is_empty else _copy(partition, split.partition, owned, held, file)


def _copy(partition: MasterPartition, number: int, owned: OffsetRange, held: Held, file: TopicFile) -> Answered:
    answers = Answers(number, owned)
    for chunk in partition.read(owned, after_epoch=held.leader_epoch_before(owned.start)):
        answers.add(chunk)
        file.write(with_identity(KAFKA_LOG, partition.log_id, held.epoch, chunk.records))
    return answers.finish()
