"""What a task does with its splits of a topic: read, write one file, report. As in `sinks/tasks.py`.

In comes what is planned of each split, of any partitions, out goes one small report of all of them, in JSON. The split
that begins at a partition's position is read with the leader epoch of what lies before it, so the broker itself says
whether what comes continues what is committed.

An error that a retry can help is raised, so that Spark runs the task again; any other one travels in the report.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sinks.handshake import Append, clip, decide
from sinks.kafka.split_files import Answers, TopicFile
from sinks.kafka.split_report import Answered, TopicReport
from sinks.tables import KAFKA_LOG, with_identity
from sources.errors import LogtwinError, ReplicaError, naming
from sources.master import PlannedSplit
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

    def __call__(self, splits: Iterable[PlannedSplit]) -> Iterator[str]:
        """One report of all splits, as JSON; of none nothing."""
        given = list(splits)
        if given:
            yield self._report(given).as_json()

    def _report(self, splits: Iterable[PlannedSplit]) -> TopicReport:
        try:
            return self._write(sorted(map(self._split, splits)))
        except LogtwinError as error:
            named = error.at(self.topic.log_id)
            if named.is_transient:
                raise RuntimeError(named.token()) from error
            return TopicReport(log_id=self.topic.log_id, error=named)

    def _split(self, planned: PlannedSplit) -> _Split:
        topic, _, partition = planned.log_id.rpartition("/")
        if topic != str(self.topic.log_id) or not partition.isdecimal():
            raise ReplicaError("a batch of another topic", expected=f"{self.topic.log_id}/…", found=planned.log_id)
        return _Split(int(partition), planned.owned, planned.batch)

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
