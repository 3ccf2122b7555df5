"""A Kafka topic being replicated: its replica, the group that acknowledges, its streaming query over all partitions.

Its life is that of every `Replication`. What is proven before anything is promised: that the topic is the one that was
replicated, by its id, and that its leaders still have that history, by their epochs. A loss belongs to a partition:
that one is passed or reported, and the topic goes on, or stops, as a whole.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from pipeline.checkpoint import Checkpoint, agrees_in_topic
from pipeline.config import Config
from pipeline.loss_policy import explained
from pipeline.loss_record import LossRecord
from pipeline.master_watch import MasterWatch
from pipeline.progress import ENDED, PartitionProgress, Phase, Progress
from pipeline.replication import Replication, source_options
from pipeline.stream import CHECK_OWNERSHIP_EVERY_S, Stream
from pipeline.topic_watch import WatchedTopic
from sinks.default_place import check_one_place
from sinks.incidents import Incident
from sinks.kafka.replica import TopicReplica
from sinks.kafka.state import TopicState
from sinks.steps import Step, no_step
from sources.errors import LogtwinError, OffsetOutOfRange, Recreated, ReplicaError, TakenOver
from sources.kafka.metadata import fetched
from sources.kafka.options import ReplicatedTopicOptions, TopicOptions
from sources.kafka.topic import KafkaTopic, open_topic
from sources.kafka.topic_offsets import TopicBounds, TopicOffsets
from sources.loss import Condition, condition_of
from sources.master_topic import TopicSession, partition_log
from sources.metadata import Fetched
from sources.offsets import LogId, Offset, OffsetRange
from sources.options import LATEST

log = logging.getLogger(__name__)


class TopicReplication(Replication):
    """See `Replication`."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        options: ReplicatedTopicOptions,
        *,
        available_now: bool,
        take_over: bool = False,
        on_step: Callable[[Step], None] | None = None,
    ) -> None:
        super().__init__(spark, config, LogId.parse(options.id), available_now=available_now, take_over=take_over)
        self._options = options
        self._topic: KafkaTopic = open_topic(options)
        self._watched = WatchedTopic(self._topic)
        self._watch = MasterWatch(self._watched)
        self._session: TopicSession = self._topic.open_session()
        self._replica = TopicReplica(
            spark, config.warehouse, self._topic, self._session, self._writer, on_step or no_step
        )
        self._losses = LossRecord(options.on_loss)
        self._stream = Stream(spark, str(self._log_id), self._apply)
        self._look_at_s = 0.0

    def progress(self) -> Progress:
        """How it stands, from any thread."""
        # In this order: a batch moves them in the other, so that each is at most the next at every moment.
        session, acknowledged = self._session.state, self._session.acknowledged
        state = self._state()
        position = None if state is None else state.offset
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
            partitions=_partitions(held, state, acknowledged),
        )

    def _claim(self) -> Offset | None:
        self._topic.check()
        self._watched.topic_id = self._replica.open()
        return self._replica.state.offset

    def _begin(self, bounds: TopicBounds) -> None:
        starts = bounds.latest if self._options.starting_offset == LATEST else bounds.earliest
        self._replica.begin(bounds.topic_id, starts.next)
        self._watched.topic_id = bounds.topic_id

    def _resume(self) -> None:
        self._watch.ask(self._replica.state.offset, time.monotonic())
        if self._watched.topic_id is None and self._watched.newest is not None:
            self._begin(self._watched.newest)
        # What the table holds may be promised at once: who looks at the group's lag need not wait for new records.
        self._replica.prove_master()
        self._session.acknowledge(self._replica.state.positions)
        self._start_query()

    def poll(self, now_s: float) -> Phase:
        if self._stream.has_ended:
            failure = self._stream.end()
            if failure is not None:
                self.note(failure)
            elif self._phase not in ENDED:
                self.end()
        if self._phase is Phase.RUNNING and now_s >= self._look_at_s:
            self._look_at_s = now_s + CHECK_OWNERSHIP_EVERY_S
            self._check_owner()
        return super().poll(now_s)

    def fail(self, error: LogtwinError, *, for_good: bool) -> None:
        self._stream.stop()
        self._stream.end()  # what ended it is known
        super().fail(error, for_good=for_good)

    def stop(self) -> None:
        self._stream.stop()
        super().stop()

    def _apply(self, batch: DataFrame) -> None:
        before = self._replica.state.partitions
        self._replica.apply(batch)
        added = sorted(self._replica.state.partitions.keys() - before.keys())
        if added:
            log.warning(
                "%s: the topic has more partitions: %s came after %d others. They are replicated from offset 0; the "
                "records of a key may be in another partition from now on",
                self._log_id, ", ".join(map(str, added)), len(before),
            )  # fmt: skip
        if self._replica.last is not None:
            self.took(self._replica.last)

    def _check_owner(self) -> None:
        """A job that lost its topic must not go on as its replica, also where no batch would tell it."""
        if not self._stream.in_batch.acquire(blocking=False):
            return  # the batch that is under way finds out by itself
        try:
            self._replica.check_ownership()
        except TakenOver as error:
            self.note(error)
        except ReplicaError as error:
            log.warning("%s: cannot tell whether this job still owns the topic: %s", self._log_id, error)
        finally:
            self._stream.in_batch.release()

    def _ask_master(self, now_s: float) -> None:
        self._watch.poll(self._replica.state.offset, now_s)

    def _disproof(self) -> LogtwinError | None:
        return self._session.failure

    def _meet(self, error: LogtwinError) -> bool:
        state = self._state()
        if state is None:
            return False
        passed = [
            self._losses.meet(one, LostPartition(self._replica, self._watched, number, one))
            for number, one in self._losses_of(error, state).items()
        ]
        return bool(passed) and all(passed)

    def _losses_of(self, error: LogtwinError, state: TopicState) -> dict[int, LogtwinError]:
        """The partitions that `error` concerns, and what each has lost.

        Retention seldom stops at one of them: each is looked at. What names none concerns all that hold
        something.
        """
        if isinstance(error, OffsetOutOfRange):
            with suppress(LogtwinError):
                self._watched.ask()  # its retention goes on meanwhile
            held, positions = self._watched.newest, _positions(state)
            found = {} if held is None or positions is None else positions.not_held(held, self._log_id)
            if found:
                return dict(found)
        number_of = {str(partition_log(self._log_id, number)): number for number in self._known(state)}
        named = number_of.get(str(error.log))
        concerned = [number for number, one in state.partitions.items() if one.offset > one.first]
        return dict.fromkeys(concerned, error) if named is None else {named: error}

    def _known(self, state: TopicState) -> list[int]:
        held = self._watched.newest
        return sorted({*state.partitions, *(() if held is None else held.held)})

    def _explained(self, error: LogtwinError) -> LogtwinError:
        """Of a topic only what retention took is passed, and nothing is repaired yet: other errors say what to do."""
        if condition_of(error) is not Condition.BELOW_MINIMUM:
            return error
        return explained(error, self._options.on_loss, self._replica.state.offset if self._is_open else None)

    def _fetch(self) -> Iterable[Fetched]:
        return fetched(self._topic)

    def _close_session(self) -> None:
        self._session.close()

    def _state(self) -> TopicState | None:
        return self._replica.state if self._is_open else None

    def _start_query(self) -> None:
        position, bounds = _positions(self._replica.state), self._watched.newest
        if position is None or bounds is None:
            raise ValueError("the replica has not begun")
        check_one_place(self._spark, self._config.checkpoint_root)
        checkpoint = Checkpoint(f"{self._config.checkpoint_root}/{self._log_id}")
        planned = checkpoint.planned()
        if not agrees_in_topic(planned, position, bounds):
            aside = checkpoint.move_aside(datetime.now(UTC))
            log.warning(
                "%s: the checkpoint %s and does not lead on from the table's position %s; "
                "the table is right. The checkpoint was moved to %s",
                self._log_id, planned, position.next, aside,
            )  # fmt: skip
        interval = f"{int(self._config.trigger_interval_s * 1000)} milliseconds"
        trigger = {"availableNow": True} if self._available_now else {"processingTime": interval}
        self._stream.start(source_options(_given(self._options, position)), checkpoint.uri, trigger)


class LostPartition:
    """A partition whose log has ended the topic by `error`."""

    def __init__(self, replica: TopicReplica, watched: WatchedTopic, number: int, error: LogtwinError) -> None:
        self._replica = replica
        self._watched = watched
        self._number = number
        self._is_another = isinstance(error, Recreated)

    @property
    def position(self) -> Offset | None:
        return self._replica.state.partition(self._number).offset

    def bounds(self) -> OffsetRange | None:
        """What the partition held when it was asked last; nothing of what was replicated where the topic is another."""
        if self._is_another:
            return OffsetRange(Offset(0), Offset(0))
        held = self._watched.newest
        return None if held is None else held.held.get(self._number)

    def skip(self, incident: Incident) -> None:
        self._replica.skip(self._number, incident)

    def report(self, incident: Incident) -> None:
        self._replica.report(self._number, incident)


def _positions(state: TopicState) -> TopicOffsets | None:
    """None before the replica has begun."""
    if state.topic_id is None:
        return None
    return TopicOffsets(state.topic_id, {number: one.offset for number, one in state.partitions.items()})


def _partitions(
    held: TopicBounds | None, state: TopicState | None, acknowledged: Mapping[int, Offset]
) -> dict[int, PartitionProgress]:
    """Of each that the topic has, or the replica."""
    known = {} if held is None else held.held
    begun = None if state is None or state.topic_id is None else state
    return {
        number: PartitionProgress(
            minimum=known[number].start if number in known else None,
            position=None if begun is None else begun.partition(number).offset,
            acknowledged=acknowledged.get(number),
            maximum=known[number].end if number in known else None,
        )
        for number in sorted({*known, *(() if begun is None else begun.partitions)})
    }


def _given(options: ReplicatedTopicOptions, position: TopicOffsets) -> dict[str, object]:
    """What the data source is told: the options of the topic, and the table's positions over any starting offset."""
    given = {name: getattr(options, name) for name in TopicOptions.model_fields}
    return given | {"emit": "ranges", "starting_offset": json.dumps(position.to_json())}
