"""Batches of a topic's partitions, and replicas to give them to: one group, as a job has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sinks.batch.group import Group, Outcome
from sinks.batch.proof import BatchStep
from sinks.batch.replica import Replica, open_together
from sinks.state.fence import this_writer
from sinks.state.log_state import LogState
from sinks.state.positions import Beginning
from sinks.tables import KAFKA_LOG
from sources.master import Planned, PlannedSplit
from sources.offsets import LogId, Offset, OffsetRange, partition_log
from tests.sinks.batches import rows
from tests.sinks.memory_master import RecordingSession
from tests.sinks.memory_partition import ORDERS, TOPIC_ID, MemoryPartition

Batch = Mapping[int, tuple[int, int]]
"""A range of each partition, by number."""


def planned(batch: Batch, split: int = 10**9, *, topic: LogId = ORDERS) -> list[Planned]:
    return [
        PlannedSplit(str(partition_log(topic, number)), OffsetRange(Offset(start), Offset(end)), piece)
        for number, (start, end) in batch.items()
        for piece in OffsetRange(Offset(start), Offset(end)).in_pieces(split)
    ]


class Twin:
    """The replicas of a topic's partitions in `lake`, with their sessions and the steps that batches take."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Path,
        partitions: Mapping[int, MemoryPartition],
        *,
        on_step: Callable[[BatchStep], None] | None = None,
    ) -> None:
        self._lake = lake
        self._topic = next(iter(partitions.values())).topic
        self.steps: list[BatchStep] = []
        self.session = RecordingSession()  # of all partitions
        writer = this_writer()
        self.replicas = {
            number: Replica(spark, str(lake), master, self.session, writer) for number, master in partitions.items()
        }
        on_step = on_step or self.steps.append
        self.group = Group(spark, str(lake), on_step, table=KAFKA_LOG)

    def opened(self, *, begins_at: int = 0, identity: str = TOPIC_ID) -> Twin:
        """Claimed; those that are fresh begin there."""
        self.begin({one.log_id: Offset(begins_at) for one in self.replicas.values()}, identity)
        return self

    def begin(self, starts: Mapping[LogId, Offset], identity: str = TOPIC_ID) -> list[str]:
        """Claim them; which of them came after others of `starts` had begun."""
        return [*map(str, open_together([*self.replicas.values()], [Beginning(starts, identity)]))]

    def takes(self, batch: Batch, split: int = 10**9) -> dict[int, Outcome]:
        """What a batch does, by partition."""
        replicas = {str(one.log_id): one for one in self.replicas.values()}
        outcomes = self.group.apply(planned(batch, split, topic=self._topic), replicas)
        return {int(log_id.rpartition("/")[2]): outcome for log_id, outcome in outcomes.items()}

    @property
    def offsets(self) -> dict[int, int | None]:
        return {number: one.position() for number, one in self.replicas.items()}

    @property
    def promises(self) -> dict[int, list[int]]:
        return {
            number: [int(call[one.log_id].offset) for call in self.session.calls if one.log_id in call]
            for number, one in self.replicas.items()
        }

    def state(self, number: int) -> LogState:
        state = self.replicas[number].state
        assert state is not None
        return state

    def version(self) -> int:
        table: Any = self.group._positions.newest()
        return int(table.version)

    def rows(self) -> dict[int, list[int]]:
        """The offsets in the table, in order, by partition."""
        found: dict[int, list[int]] = {}
        for row in rows(self._lake / "kafka_log", "partition", "offset"):
            found.setdefault(row["partition"], []).append(row["offset"])
        return found

    def ledger(self) -> list[tuple[int, int, int, int]]:
        """Of each range its partition, start, end and number of records, in order."""
        found = rows(self._lake / "ledger", "log_id", "start")
        return [(int(row["log_id"][-1]), row["start"], row["end"], row["records"]) for row in found]


def expected(partitions: Mapping[int, MemoryPartition], batch: Batch) -> dict[int, list[int]]:
    """`Twin.rows` where the table has just that."""
    rows = {
        number: [at for at in partitions[number].offsets if start <= at < end] for number, (start, end) in batch.items()
    }
    return {number: offsets for number, offsets in rows.items() if offsets}
