"""Batches of ranges as the data source makes them, and replicas to give them to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from sinks.replica import Replica
from sinks.steps import Step
from sinks.tables import LEDGER, LOG
from sources.master import RANGES_SCHEMA, MasterLog, Session
from sources.offsets import Offset, OffsetRange
from tests.sinks.memory_master import RecordingSession


def no_step(step: Step) -> None:
    """Nothing happens between the steps."""


def ranges(
    spark: SparkSession, start: int, end: int, split: int = 10**9, log_id: str = "rocketmq/broker-a"
) -> DataFrame:
    """The batch [start, end) in splits of `split` offsets, one a partition."""
    pieces = OffsetRange(Offset(start), Offset(end)).in_pieces(split)
    rows = [(log_id, start, end, piece.start, piece.end) for piece in pieces]
    table = pa.table([list(column) for column in zip(*rows, strict=True)] or [[]] * 5, schema=RANGES_SCHEMA)
    return spark.createDataFrame(table).repartition(max(1, len(rows)))


def opened(
    spark: SparkSession,
    warehouse: Path,
    master: MasterLog,
    session: Session | None = None,
    on_step: Callable[[Step], None] = no_step,
) -> Replica:
    """A replica that has claimed its log."""
    replica = Replica(spark, str(warehouse), master, session or RecordingSession(), on_step=on_step)
    replica.open()
    return replica


def log(spark: SparkSession, warehouse: Path) -> DataFrame:
    """The log table, in order, as Spark reads it."""
    return spark.read.format("delta").load(LOG.path(str(warehouse))).orderBy("log_id", "epoch", "offset")


def offsets(warehouse: Path) -> list[int]:
    """The offsets in the log table, in order, doubled where a record is there twice. Read by delta-rs."""
    found: list[int] = DeltaTable(LOG.path(str(warehouse))).to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
    return sorted(found)


def ledger(warehouse: Path) -> list[dict[str, Any]]:
    """The ledger, in order. Read by delta-rs."""
    rows: list[dict[str, Any]] = DeltaTable(LEDGER.path(str(warehouse))).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["log_id"], row["start"]))
