"""A job run inside the test process, and what rows of its tables are."""

import hashlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, parse
from pipeline.job.replicate import Job
from pipeline.monitoring.progress import Progress
from pipeline.system.folders import cache_folder
from sinks.batch.proof import BatchStep
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


def own_cache(folder: Path) -> Path:
    """A cache folder in `folder`: where what a JVM says goes."""
    cache = folder / "cache"
    cache.mkdir()
    (cache / "jars").symlink_to(cache_folder() / "jars")
    return cache


def encoded(log: pa.Table) -> bytes:
    """What rows of the log table, in order, are in a commit log."""
    records = log.select(RECORD_SCHEMA.names).cast(RECORD_SCHEMA)
    return b"".join(codec.encode(batch) for batch in records.combine_chunks().to_batches())


def assert_covered(rows: Sequence[dict[str, Any]], log: bytes) -> None:
    """Rows of the ledger join from 0 to the end of `log`, each with the checksum of its bytes."""
    at = 0
    for row in rows:
        part = log[row["start"] : row["end"]]
        assert (row["start"], row["bytes"]) == (at, len(part))
        assert row["checksum"] == f"sha256:{hashlib.sha256(part).hexdigest()}"
        at = row["end"]
    assert at == len(log)
