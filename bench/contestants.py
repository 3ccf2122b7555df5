"""The contestants that bring a log into Delta: logtwin, and Spark's own Kafka source with Delta's writer.

Both write micro-batches to one new table. Long runs are compared by their steady state, from the times in the table's
Delta log: the first batches, in which JVM and Python workers warm up, are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow.fs as pafs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pipeline.config.configuration import Config, parse
from pipeline.job.replicate import Job, OnPoll
from sinks.delta.files import ZSTD_LEVEL
from sinks.delta.java_names import java_names
from sinks.delta.kernel import KernelTable
from sinks.storage.place import open_folder
from sinks.tables import KAFKA_LOG
from sinks.warehouse import ensure_table

T = TypeVar("T")

CODEC = {
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.hadoop.parquet.compression.codec.zstd.level": str(ZSTD_LEVEL),
}
"""The properties for the session in which Spark writes, so that its files are like logtwin's."""


def config_of(lake: Path | str, *, metadata: bool = False, **lists: list[dict[str, Any]]) -> Config:
    """A configuration of `logs` or `topics`, as in the file, for the warehouse `lake`, maybe with their metadata."""
    return parse({"warehouse": str(lake), "metadata": {"enabled": metadata}, **lists}, where="bench")


def replicate(spark: SparkSession, config: Config, on_poll: OnPoll | None = None) -> Job:
    """Replicate with logtwin, up to the present ends of the masters' logs. Returns the ended job.

    `on_poll` is as in `Job.run`.
    """
    job = Job(spark, config, available_now=True)
    job.start()
    job.run(on_poll)
    return job


def spark_kafka_stream(
    spark: SparkSession, server: str, topic: str, lake: Path, options: Mapping[str, str]
) -> DataStreamWriter:
    """Spark's Kafka source into a table with kafka_log's columns and properties; to be triggered and started.

    The session has the connector (`bench.peers`), and CODEC among its properties.
    """
    path = KAFKA_LOG.path(str(lake))
    ensure_table(KernelTable(spark, path), KAFKA_LOG)
    given = {
        "kafka.bootstrap.servers": server,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        **options,
    }
    records = _as_kafka_log(spark.readStream.format("kafka").options(**given).load())
    return (
        records.writeStream.format("delta").option("checkpointLocation", str(lake / "checkpoint")).option("path", path)
    )


def _as_kafka_log(records: DataFrame) -> DataFrame:
    return records.selectExpr(
        "concat('kafka/bench/', topic, '/', partition) AS log_id",
        "0 AS epoch",
        "offset",
        "cast(null AS int) AS leader_epoch",
        "topic",
        "partition",
        "timestamp",
        "if(timestampType = 0, 'create_time', 'log_append_time') AS timestamp_type",
        "key",
        "value",
        "headers",
    )


def spark_kafka_replicate(
    spark: SparkSession, server: str, topic: str, lake: Path, *, batch_records: int
) -> StreamingQuery:
    """Read all that the topic has now with Spark's own source. Returns the ended query."""
    options = {"maxOffsetsPerTrigger": str(batch_records)}
    with sparks_own_files(spark):
        query = spark_kafka_stream(spark, server, topic, lake, options).trigger(availableNow=True).start()
        query.awaitTermination()
    return query


@contextmanager
def sparks_own_files(spark: SparkSession) -> Iterator[None]:
    """Write local files with Hadoop's checksums, as Spark does by default; logtwin's sessions turn them off."""
    here = java_names(spark).org.apache.hadoop.fs.Path("file:///")
    local = here.getFileSystem(spark._jsc.hadoopConfiguration())
    local.setWriteChecksum(True)
    try:
        yield
    finally:
        local.setWriteChecksum(False)


@dataclass(frozen=True, slots=True)
class Added:
    """A commit that added rows, as `files` in the table's folder."""

    at_ms: int
    rows: int
    files: tuple[str, ...]


def commits(table: Path | str) -> list[Added]:
    """The commits that added rows to the table in the folder `table`, in order, by its Delta log."""
    filesystem, folder = open_folder(str(table))
    there = filesystem.get_file_info(pafs.FileSelector(f"{folder}/_delta_log", allow_not_found=True))
    found = (added(filesystem, path) for path in sorted(one.path for one in there if one.path.endswith(".json")))
    return [one for one in found if one.rows]


def steady_records_per_s(table: Path | str, records: int, *, left_out: int, end_left_out: int = 0) -> float:
    """Records/s over the commits without the first `left_out` and, as in `without_end`, the last `end_left_out`.

    Raises SystemExit unless the table has exactly `records`, and a commit is left.
    """
    made = commits(table)
    there = sum(one.rows for one in made)
    kept = without_end(made, [one.rows for one in made], end_left_out)
    if there != records or len(kept) <= left_out:
        raise SystemExit(f"{table} has {there:,} records in {len(made)} commits, no steady state of {records:,}")
    return sum(one.rows for one in kept[left_out:]) / (kept[-1].at_ms - kept[left_out - 1].at_ms) * 1000


def without_end(batches: Sequence[T], rows: Sequence[int], left_out: int) -> Sequence[T]:
    """`batches` without the last `left_out`, and without a rest behind them with less than half as many `rows`.

    The last batch of a topic has to be left out: Spark's consumers wait there for records that do not come.
    """
    if not left_out or not batches:
        return batches
    is_rest = 2 * rows[-1] < max(rows)
    return batches[: -left_out - is_rest]


def added(filesystem: pafs.FileSystem, path: str) -> Added:
    """What the commit in the file `path` added."""
    with filesystem.open_input_stream(path) as stream:
        actions = [json.loads(line) for line in stream.readall().splitlines()]
    at_ms = next(one["commitInfo"]["timestamp"] for one in actions if "commitInfo" in one)
    adds = [one["add"] for one in actions if "add" in one]
    rows = sum(json.loads(one["stats"])["numRecords"] for one in adds)
    return Added(at_ms, rows, tuple(unquote(one["path"]) for one in adds))
