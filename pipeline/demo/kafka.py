"""The Kafka demo, ``make run MASTER=kafka``: a real broker, orders and transactions, a live replica, the proof.

The broker runs as long as the demo; its store is kept. Midway the topic gets more partitions. At the end a consumer
that is independent of logtwin counts the records, and the group's committed offsets are shown beside the positions.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from rich.console import Console
from rich.table import Table

from pipeline.config.configuration import Config, WorkloadConfig
from pipeline.demo.kafka_broker import VERSION, running_broker
from pipeline.demo.live import (
    DemoOutcome,
    as_arguments,
    demo_job,
    leave_job,
    pace,
    run_beside,
    say_start,
    show_coverage,
    show_queries,
    show_summary,
    started,
)
from pipeline.inspect.selection import held_topics
from pipeline.monitoring.display import number
from pipeline.monitoring.progress import Progress
from sinks.tables import KAFKA_LOG, LEDGER, TableSpec
from sinks.warehouse import absolute
from sources.errors import Divergent
from sources.kafka.options import ReplicatedTopicOptions
from sources.kafka.topic import open_topic
from sources.offsets import LogId, partition_log

TOPIC: Final = "orders"
LOG_ID: Final = f"kafka/demo/{TOPIC}"
PARTITIONS: Final = 6
GROWN: Final = 8
"""How many partitions the topic has from the middle of the first run on."""

QUERIES: Final = {
    "the partitions: the last two came midway": """
        SELECT partition, count(*) AS records, count_if(is_tombstone) AS tombstones,
               sum(octet_length(value)) AS value_bytes, min(timestamp) AS first_sent
        FROM kafka_records GROUP BY partition ORDER BY partition""",
    "orders as they stand: the newest record of each key, out of its JSON": """
        SELECT coalesce(try_variant_get(newest.value_json, '$.status', 'string'), 'cancelled') AS status,
               count(*) AS orders, round(sum(try_variant_get(newest.value_json, '$.amount', 'double')), 2) AS amount
        FROM (SELECT *, row_number() OVER (PARTITION BY key ORDER BY timestamp DESC, offset DESC) AS age
              FROM kafka_records) AS newest
        WHERE age = 1 GROUP BY status ORDER BY orders DESC, status""",
    "where orders come from, out of their headers": """
        SELECT header_texts['channel'] AS channel, count(*) AS records, count(DISTINCT key) AS orders
        FROM kafka_records WHERE NOT is_tombstone GROUP BY channel ORDER BY channel""",
}

_POLL_MS: Final = 500


def run_kafka_demo(settings: Config, console: Console, *, keep: bool) -> None:
    """Run the demo until everything is replicated, or with `keep` until Ctrl-C. Raises LogtwinError."""
    home = Path(settings.embedded_master.store) / "kafka"
    console.print(f"starting Kafka {VERSION} …")
    with running_broker(home, settings.jars) as server:
        console.print(f"broker: {server}, store {home}", soft_wrap=True)
        _make_topic(server)
        topics = [{"id": LOG_ID, "servers": server}]
        config = demo_job(settings, topics=topics)
        leave_job(settings.warehouse, topics=topics)
        spark, job = started(config)
        _say_start(console, job.progress()[0], settings.workload, keep)
        options = config.named_topics[0]
        has_grown = threading.Event()

        def meanwhile(seconds: float) -> None:
            """More partitions from the middle on."""
            if not has_grown.is_set() and seconds >= settings.workload.duration_s / 2:
                has_grown.set()
                _grow(server)

        sender = ["pipeline.demo.kafka_workload", server, TOPIC, *as_arguments(settings.workload, keep=keep)]
        outcome = run_beside(job, "producer", sender, lambda logs: _is_everything_told(logs[0], options), meanwhile)
        _summary(console, job.progress()[0], outcome)
        show_queries(console, spark, config.warehouse, QUERIES)
        _show_proof(console, spark, config, options)


def _make_topic(server: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=server)) as admin:
        if TOPIC not in admin.list_topics():
            # No retention: the replica is compared with the whole topic at the end, however old the topic is.
            wanted = {"num_partitions": PARTITIONS, "replication_factor": 1, "configs": {"retention.ms": "-1"}}
            admin.create_topics({TOPIC: wanted}, wait_for_metadata=True)


def _grow(server: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=server)) as admin:
        if len(admin.describe_topics([TOPIC])[0]["partitions"]) < GROWN:
            admin.create_partitions({TOPIC: GROWN})


def _is_everything_told(progress: Progress, options: ReplicatedTopicOptions) -> bool:
    """Whether everything in the topic is committed, both in the table and for the group."""
    reached = {number: (one.position or 0, one.acknowledged or 0) for number, one in progress.partitions.items()}
    ends = open_topic(options).bounds().latest.next
    return all(reached.get(number, (0, 0)) == (end, end) for number, end in ends.items())


def _say_start(console: Console, progress: Progress, workload: WorkloadConfig, keep: bool) -> None:
    complete_to = f"{number(progress.position)} offsets" if progress.position else None
    say_start(console, complete_to, "the topic's oldest records")
    sends = f"a producer sends {pace(workload, 'records', keep)}; some in transactions, some of these aborted\n"
    console.print(sends, soft_wrap=True)


def _summary(console: Console, progress: Progress, outcome: DemoOutcome) -> None:
    values = {
        "records": f"{progress.records:,} in {progress.commits:,} commits, {outcome.seconds:,.0f} s",
        "partitions": number(len(progress.partitions)),
        "position": f"{number(progress.position)}, the sum over the partitions",
        "lag": f"{number(progress.lag)} offsets",
        "acknowledged": f"{number(progress.acknowledged)}, as committed offsets of a consumer group",
        "producer": outcome.said or "cut short",
    }
    show_summary(console, values)


def _show_proof(console: Console, spark: SparkSession, config: Config, options: ReplicatedTopicOptions) -> None:
    """Show, while the broker still runs, that nothing is missing or doubled."""
    problem = next((one.problem for one in show_coverage(console, config) if one.problem is not None), None)
    if problem is not None:
        raise problem
    for held in held_topics(config):
        if held.positions:
            counts = partition_counts(
                spark, config.warehouse, options.servers, held.log_id, held.positions, group=options.group
            )
            _show_counts(console, counts, options.group)


def _show_counts(console: Console, counts: list[PartitionCounts], group: str) -> None:
    console.print(f"[bold]is it what Kafka's consumers get? and what does group {group} say?[/]", highlight=False)
    table = Table(box=None, pad_edge=False)
    for column in ("partition", "position", "group", "in the ledger", "in the table", "a consumer counts"):
        table.add_column(column, justify="right")
    for one in counts:
        row = (one.position, one.group_offset, one.in_ledger, one.in_table, one.consumed)
        table.add_row(one.log_id.name.rpartition("/")[2], *map(number, row))
    console.print(table)
    problem = next((one.problem for one in counts if one.problem is not None), None)
    if problem is not None:
        raise problem
    console.print(f"equal: {sum(one.consumed for one in counts):,} records", highlight=False)


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
