"""A job run inside the test process, and its tables read back."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pipeline.config.configuration import Config, parse
from pipeline.job.replicate import Job
from pipeline.monitoring.progress import Progress
from sinks.batch.result import BatchStep
from sinks.tables import LOG_SCHEMA
from sources.datasource import register as register  # whoever goes without Spark exchanges it here
from sources.records import RECORD_SCHEMA
from sources.rocketmq.columns import codec


def job_config(warehouse: Path | str, **log: Any) -> Config:
    """A configuration of one log, ``rocketmq/test`` unless told otherwise, without its metadata."""
    waits = {"trigger_interval_s": 0.1, "retry_wait_max_s": 0.5}
    job = {"warehouse": str(warehouse), **waits, "metadata": {"enabled": False}}
    return parse({**job, "logs": [{"id": "rocketmq/test", **log}]}, where="test")


def replicate_now(spark: SparkSession, config: Config, on_step: Callable[[BatchStep], None] | None = None) -> None:
    """``logtwin replicate --available-now``. Raises what ended a log."""
    register(spark)
    job = Job(spark, config, available_now=True, on_step=on_step)
    job.start()
    job.run(poll_interval_s=0.02)


def run_until(job: Job, reached: Callable[[Progress], bool]) -> Progress:
    """Poll a started job of one log until `reached` says so of its progress; that progress."""
    pause = threading.Event()
    for _ in range(1200):
        job.poll()
        progress = job.progress()[0]
        if reached(progress):
            return progress
        pause.wait(0.05)
    raise AssertionError(f"not reached: {progress}")


def log_table(spark: SparkSession, warehouse: Path | str) -> DataFrame:
    return spark.read.format("delta").load(f"{warehouse}/log")


def ledger_table(spark: SparkSession, warehouse: Path | str) -> DataFrame:
    return spark.read.format("delta").load(f"{warehouse}/ledger")


def rows_of(spark: SparkSession, warehouse: Path | str) -> list[dict[str, Any]]:
    return [row.asDict() for row in log_table(spark, warehouse).orderBy("offset").collect()]


def stored(spark: SparkSession, warehouse: Path | str, name: str) -> pa.Table:
    """A table. By delta-rs, without a job of the session; on an object store by the session, which has its keys."""
    path = f"{warehouse}/{name}"
    if "://" in path:
        return spark.read.format("delta").load(path).toArrow()
    return DeltaTable(path).to_pyarrow_table()


def bytes_of(spark: SparkSession, warehouse: Path | str) -> bytes:
    """The master's log, rebuilt from the table alone."""
    return encoded(stored(spark, warehouse, "log").sort_by("offset"))


def encoded(log: pa.Table) -> bytes:
    """What rows of the log table, in order, are in a commit log."""
    records = log.select(RECORD_SCHEMA.names).cast(RECORD_SCHEMA)
    return b"".join(codec.encode(batch) for batch in records.combine_chunks().to_batches())


def assert_complete(spark: SparkSession, warehouse: Path | str, log: bytes, first: int = 0) -> None:
    """The table is `log` from offset `first`, once; the ledger covers it, once, and its checksums are right."""
    assert bytes_of(spark, warehouse) == log
    assert stored(spark, warehouse, "log").column_names == pa.schema(LOG_SCHEMA).names
    assert_covered(stored(spark, warehouse, "ledger").sort_by("start").to_pylist(), log, first)


def assert_covered(rows: Sequence[dict[str, Any]], log: bytes, first: int = 0) -> None:
    """Rows of the ledger join from `first` to the end of `log`, each with the checksum of its bytes."""
    at = first
    for row in rows:
        part = log[row["start"] - first : row["end"] - first]
        assert (row["start"], row["bytes"]) == (at, len(part))
        assert row["checksum"] == f"sha256:{hashlib.sha256(part).hexdigest()}"
        at = row["end"]
    assert at == first + len(log)
