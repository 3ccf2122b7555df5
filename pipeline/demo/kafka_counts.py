"""Counts the records of a topic in its replica, and those that an independent consumer of kafka-python receives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from sinks.tables import KAFKA_LOG, LEDGER, TableSpec
from sinks.warehouse import absolute
from sources.errors import Divergent
from sources.offsets import LogId, partition_log

_POLL_MS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCounts:
    """Three counts of a partition's records below `position`, the replica's: in ledger, table and topic."""

    log_id: LogId
    position: int
    group_offset: int | None
    in_ledger: int
    in_table: int
    consumed: int

    @property
    def problem(self) -> Divergent | None:
        if self.in_ledger == self.in_table == self.consumed:
            return None
        return Divergent(
            "the replica and the topic differ in their numbers of records",
            log=self.log_id,
            offset=self.position,
            expected=f"{self.consumed:,} records below the offset, as a consumer counts them",
            found=f"{self.in_table:,} in the table, {self.in_ledger:,} in the ledger",
        )


def partition_counts(
    spark: SparkSession, warehouse: str, server: str, topic: LogId, positions: Mapping[int, int], *, group: str
) -> list[PartitionCounts]:
    """The counts of each partition, in order. `positions` are the replica's; no job may move them meanwhile."""
    name = topic.name.rpartition("/")[2]
    consumed = _consumed(server, name, positions)
    committed = _group_offsets(server, name, group)
    in_table = _sums(spark, warehouse, KAFKA_LOG, topic, "1")
    in_ledger = _sums(spark, warehouse, LEDGER, topic, "records")
    return [
        PartitionCounts(
            log_id=(log_id := partition_log(topic, number)),
            position=position,
            group_offset=committed.get(number),
            in_ledger=in_ledger.get(str(log_id), 0),
            in_table=in_table.get(str(log_id), 0),
            consumed=consumed[number],
        )
        for number, position in positions.items()
    ]


def _sums(spark: SparkSession, warehouse: str, table: TableSpec, topic: LogId, what: str) -> dict[str, int]:
    rows = spark.read.format("delta").load(table.path(absolute(warehouse)))
    of_topic = rows.where(f.col("log_id").startswith(f"{topic}/"))
    return dict(map(tuple, of_topic.groupBy("log_id").agg(f.expr(f"sum({what})")).collect()))


def _consumed(server: str, topic: str, positions: Mapping[int, int]) -> Counter[int]:
    """How many records below the positions a consumer receives: of committed transactions, or of none."""
    found: Counter[int] = Counter()
    tps = {TopicPartition(topic, number): position for number, position in positions.items()}
    options = {"isolation_level": "read_committed", "enable_auto_commit": False, "group_id": None}
    with closing(KafkaConsumer(bootstrap_servers=server, **options)) as consumer:
        consumer.assign(list(tps))
        consumer.seek_to_beginning()
        while any(consumer.position(tp) < position for tp, position in tps.items()):
            for tp, records in consumer.poll(timeout_ms=_POLL_MS).items():
                found[tp.partition] += sum(record.offset < tps[tp] for record in records)
    return found


def _group_offsets(server: str, topic: str, group: str) -> dict[int, int]:
    with closing(KafkaAdminClient(bootstrap_servers=server)) as admin:
        committed = admin.list_group_offsets(group)[group]
    return {tp.partition: at.offset for tp, at in committed.items() if tp.topic == topic}
