"""The Kafka demo, ``make run MASTER=kafka``: a real broker, orders and transactions, a live replica, the proof.

The broker runs as long as the demo; its store is kept. Midway the topic gets more partitions. At the end a consumer
that is independent of logtwin counts the records, and the group's committed offsets are shown beside the positions.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka.admin import KafkaAdminClient
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from pipeline.config.configuration import Config, WorkloadConfig
from pipeline.demo.kafka_broker import VERSION, running_broker
from pipeline.demo.kafka_counts import PartitionCounts, partition_counts
from pipeline.demo.rocketmq import pace, show_queries
from pipeline.demo.warehouse import demo_job, leave_job
from pipeline.inspect.coverage import coverage_blocks, coverages
from pipeline.inspect.topics_held import held_topics
from pipeline.job.replicate import Job
from pipeline.monitoring.display import Display, number
from pipeline.monitoring.progress import Progress
from pipeline.spark.session import session_for, warm_up
from pipeline.system.console import err
from pipeline.system.processes import child_process, stop_by_signal
from sources.errors import LogtwinError
from sources.kafka.options import ReplicatedTopicOptions
from sources.kafka.topic import open_topic

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


def run_kafka_demo(settings: Config, console: Console, *, keep: bool) -> None:
    """Run the demo until everything is replicated, or with `keep` until Ctrl-C. Raises LogtwinError."""
    home = Path(settings.embedded_master.store) / "kafka"
    console.print(f"starting Kafka {VERSION} …")
    with running_broker(home) as server:
        console.print(f"broker: {server}, store {home}", soft_wrap=True)
        _make_topic(server)
        topics = [{"id": LOG_ID, "servers": server}]
        config = demo_job(settings, topics=topics)
        leave_job(settings.warehouse, topics=topics)
        console.print("starting Spark …")
        spark = session_for(config, "logtwin demo")
        warm_up(spark)
        job = Job(spark, config, available_now=False)
        job.start()
        _say_start(console, job.progress()[0], settings.workload, keep)
        options = config.named_topics[0]
        outcome = _replicate(job, options, settings.workload, keep)
        _summary(console, job.progress()[0], outcome)
        show_queries(console, spark, config.warehouse, QUERIES)
        _show_proof(console, spark, config, options)


def _make_topic(server: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=server)) as admin:
        if TOPIC not in admin.list_topics():
            # No retention: the replica is compared with the whole topic at the end, however old the topic is.
            wanted = {"num_partitions": PARTITIONS, "replication_factor": 1, "configs": {"retention.ms": "-1"}}
            admin.create_topics({TOPIC: wanted}, wait_for_metadata=True)


def _partitions(server: str) -> int:
    with closing(KafkaAdminClient(bootstrap_servers=server)) as admin:
        return len(admin.describe_topics([TOPIC])[0]["partitions"])


def _grow(server: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=server)) as admin:
        admin.create_partitions({TOPIC: GROWN})


@dataclass(frozen=True, slots=True)
class KafkaOutcome:
    """How long it took, and what the producer printed; None if it was cut short."""

    seconds: float
    producer: str | None


def _replicate(job: Job, options: ReplicatedTopicOptions, workload: WorkloadConfig, keep: bool) -> KafkaOutcome:
    """Send and replicate until both are done, with more partitions from the middle on."""
    interrupted = threading.Event()
    has_grown = _partitions(options.servers) >= GROWN
    started_s = time.monotonic()
    display = Display(err)
    with _sender_process(options.servers, workload, keep) as sender, stop_by_signal(interrupted.set), display:

        def go_on(logs: list[Progress]) -> bool:
            nonlocal has_grown
            display(logs)
            if interrupted.is_set():
                return False
            if not has_grown and time.monotonic() >= started_s + workload.duration_s / 2:
                _grow(options.servers)
                has_grown = True
            if sender.poll() is None:
                return True
            if sender.returncode:
                raise LogtwinError("the producer failed", found=f"exit code {sender.returncode}")
            return not _is_everything_told(logs[0], options)

        job.run(go_on)
        said = sender.stdout.read().strip() if sender.poll() == 0 and sender.stdout else None
    return KafkaOutcome(time.monotonic() - started_s, said)


def _is_everything_told(progress: Progress, options: ReplicatedTopicOptions) -> bool:
    """Whether everything in the topic is committed, both in the table and for the group."""
    reached = {number: (one.position or 0, one.acknowledged or 0) for number, one in progress.partitions.items()}
    ends = open_topic(options).bounds().latest.next
    return all(reached.get(number, (0, 0)) == (end, end) for number, end in ends.items())


def _say_start(console: Console, progress: Progress, workload: WorkloadConfig, keep: bool) -> None:
    if not progress.position:
        console.print("the table is empty: it begins at the topic's oldest records")
    else:
        console.print(f"the table is complete up to {number(progress.position)} offsets: it goes on from there")
    sends = f"a producer sends {pace(workload, 'records', keep)}; some in transactions, some of these aborted\n"
    console.print(sends, soft_wrap=True)


def _summary(console: Console, progress: Progress, outcome: KafkaOutcome) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in {
        "records": f"{progress.records:,} in {progress.commits:,} commits, {outcome.seconds:,.0f} s",
        "partitions": number(len(progress.partitions)),
        "position": f"{number(progress.position)}, the sum over the partitions",
        "lag": f"{number(progress.lag)} offsets",
        "acknowledged": f"{number(progress.acknowledged)}, as committed offsets of a consumer group",
        "producer": outcome.producer or "cut short",
    }.items():
        table.add_row(f"[bold]{name}[/]", value)
    console.print(table)


def _show_proof(console: Console, spark: SparkSession, config: Config, options: ReplicatedTopicOptions) -> None:
    """Show, while the broker still runs, that nothing is missing or doubled."""
    console.print("\n[bold]is anything missing? logtwin coverage[/]", highlight=False)
    found = coverages(config)
    console.print(coverage_blocks(found))
    problem = next((one.problem for one in found if one.problem is not None), None)
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


@contextmanager
def _sender_process(server: str, workload: WorkloadConfig, keep: bool) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "pipeline.demo.kafka_workload", server, TOPIC, "--seed", str(workload.seed)]
    command += ["--rate-per-s", str(workload.rate_per_s)]
    command += ["--duration-s", str(10**9 if keep else workload.duration_s)]
    if workload.count is not None:
        command += ["--count", str(workload.count)]
    with child_process(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
