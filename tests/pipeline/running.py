"""A job run inside the test process, and its tables read back."""

from __future__ import annotations

import threading
from collections.abc import Callable
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
from tests.pipeline.read_back import check_ledger, encoded


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
    """Every row of the log table, by offset."""
    return [row.asDict() for row in log_table(spark, warehouse).orderBy("offset").collect()]


def bytes_of(spark: SparkSession, warehouse: Path | str) -> bytes:
    """The master's log, rebuilt from the table alone."""
    return encoded(_rows(spark, warehouse, "log").sort_by("offset"))


def assert_complete(spark: SparkSession, warehouse: Path | str, log: bytes, first: int = 0) -> None:
    """The table is `log` from offset `first`, once; the ledger covers it, once, and its checksums are right."""
    rows = _rows(spark, warehouse, "log").sort_by("offset")
    assert encoded(rows) == log
    check_ledger(_rows(spark, warehouse, "ledger"), log, first)
    assert pa.schema(LOG_SCHEMA).names == rows.column_names


def _rows(spark: SparkSession, warehouse: Path | str, name: str) -> pa.Table:
    """By Spark only where the store is another one than a disk: that takes seconds."""
    if "://" in str(warehouse):
        return spark.read.format("delta").load(f"{warehouse}/{name}").toArrow()
    return DeltaTable(f"{warehouse}/{name}").to_pyarrow_table()
