"""The replica of one topic: what `foreachBatch` calls for each batch of ranges of all its partitions.

    handshake -> tasks write files, report -> coverage proven -> one commit -> acknowledge -> ledger, incidents -> hooks

The order is the promise, as in `sinks/replica.py`; here one commit moves the positions of all partitions together. What
the next record of a partition continues is proven by leader epochs: each read says under which epoch the committed
records were written, and the leader refuses where its history is another.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from sinks.incidents import Incident
from sinks.kafka.batch_proof import ProvenTopicBatch, prove_topic_batch
from sinks.kafka.bookkeeping import TopicBookkeeping
from sinks.kafka.position import TopicTable
from sinks.kafka.split_job import discard_files, run_topic_splits
from sinks.kafka.split_report import TopicReport
from sinks.kafka.state import ADDED_LATER, Of, PartitionState, TopicState
from sinks.kafka.tasks import Held, TopicWriter
from sinks.kernel import KernelTable
from sinks.log_state import Writer
from sinks.owned import Found
from sinks.split_job import planned
from sinks.steps import BatchResult, Clock, Step, no_step
from sinks.tables import KAFKA_LOG
from sinks.warehouse import absolute, ensure_table, ensure_tables
from sources.errors import LogtwinError, ReplicaError, naming
from sources.master import PlannedSplit
from sources.master_topic import MasterTopic, PartitionPosition, TopicSession
from sources.offsets import LogId, Offset, OffsetRange

_log = logging.getLogger(__name__)


class TopicReplica:
    """One topic's replica, owned by one run. Driver only; Spark calls it for one batch after the other.

    `on_step` is called after each step: progress, and the tests' way to die there.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: str,
        topic: MasterTopic,
        session: TopicSession,
        writer: Writer | None = None,
        on_step: Callable[[Step], None] = no_step,
    ) -> None:
        self._spark = spark
        self._warehouse = absolute(warehouse)
        self._topic = topic
        self._session = session
        self._writer = writer or Writer.of_this_process()
        self._on_step = on_step
        self._table = TopicTable(spark, KAFKA_LOG.path(self._warehouse), topic.log_id)
        self._bookkeeping = TopicBookkeeping(spark, self._warehouse, topic.log_id)
        self._state: TopicState | None = None
        self.last: BatchResult | None = None

    def open(self) -> uuid.UUID | None:
        """Make the tables, take the topic, restore what its newest commit owes. Returns its id, None if fresh.

        Opened again, it goes on where it stands and takes nothing back from a run that started later.
        Raises ConfigurationError (a table that is not ours), ReplicaError, TakenOver.
        """
        ensure_tables(self._spark, self._warehouse)
        ensure_table(KernelTable(self._spark, KAFKA_LOG.path(self._warehouse)), KAFKA_LOG)
        state = self._table.claim(self._writer) if self._state is None else self._table.held_by(self._writer)
        self._bookkeeping.check(state)
        self._state = state
        if self._bookkeeping.settle(state):
            _log.info("%s: restored what the newest commit owes to other tables", self._topic.log_id)
        self._run_hooks()
        return state.topic_id

    def begin(self, topic_id: uuid.UUID, starts: Mapping[int, Offset]) -> None:
        """Begin with the topic that `topic_id` names, each partition at its start.

        It is committed: whatever happens, no later start begins elsewhere. Raises TakenOver, ReplicaError.
        """
        self._commit(self._found(), self._opened().begun(topic_id, starts))

    def prove_master(self) -> None:
        """Make sure that the topic is the one that was replicated, as far as its leaders know their history.

        From any thread, once the replica has begun. Raises what `MasterTopic.check_history` raises.
        """
        state = self._opened()
        if state.topic_id is not None:
            self._topic.check_history(state.topic_id, state.positions)

    def skip(self, partition: int, incident: Incident) -> None:
        """Pass over the range of `incident`, which begins at the partition's position, in a commit of its own.

        Raises TakenOver, ReplicaError.
        """
        mine = self._opened()
        if incident.start != mine.partition(partition).offset:
            raise ValueError(f"{incident.range} does not begin at the position {mine.partition(partition).offset}")
        state = mine.without(partition, incident)
        self._commit(self._found(), state)
        self._bookkeeping.settle(state)
        self._run_hooks()

    def report(self, partition: int, incident: Incident) -> None:
        """Put on record what was found and is not passed. Raises ReplicaError."""
        self._bookkeeping.report(self._opened(), partition, incident)

    def check_ownership(self) -> None:
        """Look whether this run still owns the topic: one look at the table, never while a batch is under way.

        Raises TakenOver where a run that started later has claimed it, ReplicaError where the table does not tell.
        """
        self._table.held_by(self._writer)

    @property
    def state(self) -> TopicState:
        """What this run has committed, or found committed when it opened."""
        return self._opened()

    def apply(self, batch: DataFrame) -> None:
        """Bring one batch of ranges (RANGES_SCHEMA) into the table. Raises LogtwinError, naming the topic."""
        with naming(self._topic.log_id):
            self._apply(batch)

    def _apply(self, batch: DataFrame) -> None:
        topic_id, mine = self._begun()
        found = self._found()
        clock = Clock()
        held = {number: _held(one) for number, one in mine.partitions.items()}
        write = TopicWriter(self._topic, topic_id, held, _held(ADDED_LATER), self._warehouse)
        reports = run_topic_splits(batch.sparkSession, _splits(batch, self._topic.log_id), write)
        proven = self._prove(reports, held)
        if proven is None:
            self._acknowledge_again(mine)
            return
        self._step(Step.FILES, clock)
        state = mine.moved_to(_ends(proven), [Of(*row) for row in proven.ledger(time.time_ns() // 1000)])
        self._commit(found, state, proven)
        self._step(Step.COMMIT, clock)
        self._session.acknowledge(_ends(proven))
        self._step(Step.ACKNOWLEDGE, clock)
        self._bookkeeping.settle(state)
        self._step(Step.LEDGER, clock)
        self._run_hooks()
        self.last = BatchResult(
            range=OffsetRange(_sum(mine), _sum(state)),
            records=proven.records,
            bytes=proven.bytes,
            is_overlap=any(moved.is_overlap for moved in proven.moved.values()),
            durations_s=clock.durations_s,
        )

    def _prove(self, reports: Sequence[TopicReport], held: Mapping[int, Held]) -> ProvenTopicBatch | None:
        try:
            return prove_topic_batch(reports, held, _held(ADDED_LATER))
        except LogtwinError:
            discard_files(self._warehouse, reports)
            raise

    def _found(self) -> Found[TopicState]:
        """The table where this run left it. Raises TakenOver."""
        found = self._table.read()
        self._table.check(found.state, self._opened())
        return found

    def _commit(self, found: Found[TopicState], state: TopicState, proven: ProvenTopicBatch | None = None) -> None:
        self._table.commit(found, state, () if proven is None else proven.files)
        self._state = state

    def _acknowledge_again(self, state: TopicState) -> None:
        """A replay: the promise may have been lost with the job that made it."""
        self._session.acknowledge(state.positions)
        self._on_step(Step.ACKNOWLEDGE)
        at = _sum(state)
        self.last = BatchResult(OffsetRange(at, at), 0, 0, is_overlap=False)

    def _run_hooks(self) -> None:
        self._table.run_hooks()
        self._bookkeeping.run_hooks()

    def _step(self, step: Step, clock: Clock) -> None:
        clock.lap(step)
        self._on_step(step)

    def _opened(self) -> TopicState:
        if self._state is None:
            raise ReplicaError("the replica is not open", log=self._topic.log_id, hint="Call open() first.")
        return self._state

    def _begun(self) -> tuple[uuid.UUID, TopicState]:
        state = self._opened()
        if state.topic_id is None:
            raise ReplicaError("the replica has not begun", log=self._topic.log_id, hint="Call begin() first.")
        return state.topic_id, state


def _splits(batch: DataFrame, topic: LogId) -> list[PlannedSplit]:
    return [row for row in planned(batch, str(topic)) if isinstance(row, PlannedSplit)]


def _held(state: PartitionState) -> Held:
    return Held(state.epoch, state.position)


def _ends(proven: ProvenTopicBatch) -> dict[int, PartitionPosition]:
    return {number: moved.end for number, moved in proven.moved.items()}


def _sum(state: TopicState) -> Offset:
    return state.offset or Offset(0)
