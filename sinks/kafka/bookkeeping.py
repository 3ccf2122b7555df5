"""What a commit of a topic owes to other tables: ledger rows and incidents, of any of its partitions.

As `sinks/bookkeeping.py` of a log: all of it stands in the domain metadata of the commit, so it can be written again.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from sinks.incidents import Incident, IncidentsTable
from sinks.kafka.state import TopicState
from sinks.ledger import Entry, Ledger
from sinks.tables import LEDGER
from sources.master_topic import partition_log
from sources.offsets import LogId


class TopicBookkeeping:
    """Of one topic. Driver only; one thread at a time."""

    def __init__(self, spark: SparkSession, warehouse: str, topic: LogId) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._topic = topic
        self._ledger = Ledger(spark, LEDGER.path(warehouse))

    def check(self, state: TopicState) -> None:
        """Raises ReplicaError where the ledger is ahead of table kafka_log."""
        self._ledger.check_topic(self._topic, state.commits)

    def settle(self, state: TopicState) -> bool:
        """Write what the commit of `state` owes and is not there yet; whether that was anything."""
        rows = [
            Entry(partition_log(self._topic, of.partition), state.partition(of.partition).epoch, of.one)
            for of in state.ledger
        ]
        were_missing = [self._ledger.append_topic(self._topic, state.commits, rows)]
        were_missing += [self.report(state, of.partition, of.one) for of in state.incidents]
        return any(were_missing)

    def report(self, state: TopicState, partition: int, incident: Incident) -> bool:
        """Write an incident, unless it is there; whether it was not."""
        table = IncidentsTable(self._spark, self._warehouse, partition_log(self._topic, partition))
        return table.record(state.partition(partition).epoch, [incident]) > 0

    def run_hooks(self) -> None:
        self._ledger.run_hooks()
