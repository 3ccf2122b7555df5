"""Replicates a Kafka topic: each partition is a log with its own replica; offsets are committed to a consumer group.

Its life cycle is that of every `Replication`; `pipeline/job/log_group.py` reads it. Before anything is acknowledged,
the topic's id proves that it is the replicated topic, and the leaders' epochs prove that they have the same history.
A loss belongs to a partition, and is passed or reported there; the topic goes on, or stops, as a whole.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.job.loss_policy import explained
from pipeline.job.loss_record import LossRecord
from pipeline.job.master_watch import MasterWatch
from pipeline.job.replication import Replication
from pipeline.job.topic_watch import WatchedTopic
from pipeline.monitoring.display import held_back_by_transaction
from pipeline.monitoring.progress import PartitionProgress, Progress
from sinks.batch.replica import Replica, begin_together
from sinks.state.opening import Opening
from sinks.state.topic_states import take_apart, topics_held
from sources.errors import LogtwinError, OffsetOutOfRange, Recreated, RepairPending
from sources.kafka.log import KafkaLog
from sources.kafka.metadata import fetched, held_back
from sources.kafka.options import ReplicatedTopicOptions
from sources.kafka.reader import RECORD_BYTES
from sources.kafka.session import PartitionSession
from sources.kafka.topic import KafkaTopic, open_topic
from sources.kafka.topic_offsets import TopicBounds, TopicOffsets
from sources.master_topic import PartitionPosition, TopicSession
from sources.metadata import FetchedMetadata
from sources.offsets import LogId, Offset, OffsetRange
from sources.options import LATEST

log = logging.getLogger(__name__)


class TopicReplication(Replication):
    """The replication of one Kafka topic; see `Replication`."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        options: ReplicatedTopicOptions,
        *,
        available_now: bool,
        take_over: bool = False,
        opening: Opening | None = None,
    ) -> None:
        log_id = LogId.parse(options.id)
        super().__init__(spark, config, log_id, available_now=available_now, take_over=take_over, opening=opening)
        self._options = options
        self._topic: KafkaTopic = open_topic(options)
        self._watched = WatchedTopic(self._topic)
        self._watch = MasterWatch(self._watched)
        self._session: TopicSession = self._topic.open_session()
        self._replicas: Mapping[int, Replica] = {}
        self._losses = LossRecord(options.on_loss)

    @property
    def replicas(self) -> Mapping[str, Replica]:
        return {str(one.log_id): one for one in self._replicas.values()}

    @property
    def options(self) -> ReplicatedTopicOptions:
        return self._options

    @property
    def batch_bytes(self) -> int:
        return self._options.max_offsets_per_trigger * RECORD_BYTES

    def progress(self) -> Progress:
        """The progress now. From any thread."""
        # Read in this order, because a batch moves them in the reverse one: so each is at most the next at all times.
        session, acknowledged = self._session.state, self._session.acknowledged
        offsets = self._offsets()
        position = _sum(offsets)
        bounds, held = self._watch.bounds, self._watched.newest
        seen = [offset for offset in (None if bounds is None else bounds.end, position) if offset is not None]
        return self._progress(
            role=self._options.role,
            master=self._options.servers,
            master_role=None,
            received=position,
            position=position,
            session=session,
            master_minimum=None if bounds is None else bounds.start,
            master_maximum=max(seen, default=None),
            lag_s=self._watch.lag_s(position, time.monotonic()),
            until_loss=None,
            incidents=self._losses.counts,
            partitions=_partitions(held, offsets, acknowledged),
        )

    def _claim(self) -> Offset | None:
        self._topic.check()
        take_apart(self._spark, self._config.warehouse, self._log_id)
        if self._replicas:
            self._opening.open(*self._replicas.values())
        else:
            held = topics_held(self._config.warehouse).get(self._log_id, {})
            # A partition that was claimed but has no position counts as new: `_add` starts it.
            self._replicas = self._opened(number for number, one in held.items() if one.offset is not None)
        self._watched.topic_id = self._identity()
        return _sum(self._offsets())

    def _identity(self) -> uuid.UUID | None:
        """The id of the replicated topic. Raises RepairPending if its partitions belong to different topics."""
        states = (one.state for one in self._replicas.values())
        found = sorted({one.identity for one in states if one is not None and one.identity is not None})
        if len(found) > 1:  # the session has one topic: it would acknowledge offsets of the old one to the new one
            raise RepairPending(
                "a repair has come to some of the topic's partitions, and not to all",
                log=self._log_id,
                expected="partitions of one topic",
                found=f"partitions of topics {', '.join(found)}",
                hint=f"logtwin repair --log {self._log_id} --accept-master takes it to its end.",
            )
        return uuid.UUID(found[0]) if found else None

    def _resume(self) -> None:
        self._watch.ask(_sum(self._offsets()), time.monotonic())
        if self._watched.newest is not None:
            self._add(self._watched.newest)
        positions = self._positions()
        if self._watched.topic_id is not None:
            self._topic.check_history(self._watched.topic_id, positions)
        # What the table holds may be acknowledged at once: the group's lag is right before any new record comes.
        self._session.acknowledge(positions)

    def _opened(self, numbers: Iterable[int]) -> dict[int, Replica]:
        """Open replicas of the partitions `numbers`, claimed in one commit."""
        found = {number: self._replica(number) for number in sorted(numbers)}
        if found:
            self._opening.open(*found.values())
        return found

    def _replica(self, number: int) -> Replica:
        session = PartitionSession(self._session, number, is_shared=True)
        return Replica(
            self._spark, self._config.warehouse, KafkaLog(topic=self._topic, number=number), session, self._writer
        )

    def _add(self, bounds: TopicBounds) -> None:
        """Add the partitions that the topic has and the replica has not.

        A replica begins with one commit of all its partitions, so that a crash cannot change where each starts. A
        partition that comes later was therefore added to the topic, and begins at 0.
        """
        added = self._opened(bounds.held.keys() - self._replicas.keys())
        is_fresh = not self._replicas
        starts = bounds.latest if self._options.starting_offset == LATEST else bounds.earliest
        fresh = {number: one for number, one in added.items() if one.position() is None}
        begin_together(
            [(one, starts.next[at] if is_fresh else Offset(0)) for at, one in fresh.items()], str(bounds.topic_id)
        )
        if added and not is_fresh:
            log.warning(
                "%s: the topic has more partitions: %s came after %d others. They are replicated from offset 0; the "
                "records of a key may be in another partition from now on",
                self._log_id, ", ".join(map(str, added)), len(self._replicas),
            )  # fmt: skip
        self._replicas = {**self._replicas, **added}
        self._watched.topic_id = bounds.topic_id

    def _ask_master(self, now_s: float) -> None:
        self._watch.poll(_sum(self._offsets()), now_s)
        newest = self._watched.newest
        if newest is None or newest.held.keys() <= self._replicas.keys() or not self.in_use.acquire(blocking=False):
            return
        try:
            self._add(newest)
        except LogtwinError as error:
            self.note(error)
        finally:
            self.in_use.release()

    def _disproof(self) -> LogtwinError | None:
        return self._session.failure

    def _meet(self, error: LogtwinError) -> bool:
        passed = [
            self._losses.meet(one, LostPartition(self._replicas[number], self._watched, number, one))
            for number, one in self._losses_of(error).items()
        ]
        return bool(passed) and all(passed)

    def _losses_of(self, error: LogtwinError) -> dict[int, LogtwinError]:
        """The partitions that `error` concerns, each with its own error.

        Retention seldom affects only one partition, so all are checked. An error that names no partition concerns all
        that hold something.
        """
        if isinstance(error, OffsetOutOfRange):
            with suppress(LogtwinError):
                self._watched.ask()  # the topic's retention goes on meanwhile
            if found := self._not_held():
                return found
        number_of = {str(one.log_id): number for number, one in self._replicas.items()}
        named = number_of.get(str(error.log))
        return dict.fromkeys(self._holding(), error) if named is None else {named: error}

    def _not_held(self) -> dict[int, LogtwinError]:
        held = self._watched.newest
        if held is None:
            return {}
        found = TopicOffsets(held.topic_id, self._offsets()).not_held(held, self._log_id)
        return {number: error for number, error in found.items() if number in self._replicas}

    def _holding(self) -> list[int]:
        """The partitions of which the replica holds at least one offset."""
        states = {number: one.state for number, one in self._replicas.items()}
        return [number for number, one in states.items() if one is not None and (one.offset or 0) > (one.first or 0)]

    def _explained(self, error: LogtwinError) -> LogtwinError:
        return explained(error, self._options.on_loss, _sum(self._offsets()))

    def _fetch(self) -> Iterable[FetchedMetadata]:
        for found in fetched(self._topic):
            if isinstance(found.items, pa.Table):
                for number, offsets in held_back(found.items, self._topic.isolation).items():
                    log.info("%s/%d: %s", self._log_id, number, held_back_by_transaction(offsets))
            yield found

    def _close_session(self) -> None:
        self._session.close()

    def _offsets(self) -> dict[int, Offset]:
        """The position of each partition that has one."""
        return {number: at.offset for number, at in self._positions().items()}

    def _positions(self) -> dict[int, PartitionPosition]:
        states = {number: one.state for number, one in self._replicas.items()}
        return {
            number: PartitionPosition(one.offset, one.mark)
            for number, one in states.items()
            if one is not None and one.offset is not None
        }


class LostPartition:
    """A partition whose `error` has ended the topic."""

    def __init__(self, replica: Replica, watched: WatchedTopic, number: int, error: LogtwinError) -> None:
        self._replica = replica
        self._watched = watched
        self._number = number
        self._is_another = isinstance(error, Recreated)
        self.skip = replica.skip
        self.report = replica.report

    @property
    def position(self) -> Offset | None:
        return self._replica.position()

    def bounds(self) -> OffsetRange | None:
        """What the partition held at the last look; nothing if the topic was created again."""
        if self._is_another:
            return OffsetRange(Offset(0), Offset(0))
        held = self._watched.newest
        return None if held is None else held.held.get(self._number)


def _sum(offsets: Mapping[int, Offset]) -> Offset | None:
    """The sum of the offsets; None if there are none."""
    return Offset(sum(offsets.values())) if offsets else None


def _partitions(
    held: TopicBounds | None, offsets: Mapping[int, Offset], acknowledged: Mapping[int, Offset]
) -> dict[int, PartitionProgress]:
    """The progress of each partition that the topic or the replica has."""
    known = {} if held is None else held.held
    return {
        number: PartitionProgress(
            master_minimum=known[number].start if number in known else None,
            position=offsets.get(number),
            acknowledged=acknowledged.get(number),
            master_maximum=known[number].end if number in known else None,
        )
        for number in sorted({*known, *offsets})
    }
