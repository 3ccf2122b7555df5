"""Where each replica is, and its master: what ``logtwin status`` says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from rich.table import Table

from pipeline.config import Config
from pipeline.display import number, size
from pipeline.session import build_session, spark_log
from sinks.position import LogState, LogTable
from sinks.tables import LOG
from sinks.warehouse import absolute
from sources.errors import MasterError
from sources.options import ReadOptions
from sources.registry import open_log


@dataclass(frozen=True, slots=True)
class LogStatus:
    """One log. Offsets are None where nobody could be asked or nothing is there yet."""

    id: str
    epoch: int | None
    first: int | None
    position: int | None
    master_minimum: int | None
    master_maximum: int | None
    acknowledged: int | None
    writer: str | None
    master_error: str | None

    @property
    def lag_bytes(self) -> int | None:
        if self.master_maximum is None:
            return None
        start = self.position if self.position is not None else self.master_minimum or 0
        return self.master_maximum - start

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "lag_bytes": self.lag_bytes}


def log_statuses(config: Config) -> list[LogStatus]:
    """One status a log. A master that cannot be asked is an entry in its log's status, not an error."""
    spark = build_session(config.spark, log_file=spark_log())
    path = LOG.path(absolute(config.warehouse))
    has_table = DeltaTable.isDeltaTable(spark, path)
    return [_status(spark, path if has_table else None, options) for options in config.logs]


def _status(spark: SparkSession, table: str | None, options: ReadOptions) -> LogStatus:
    state: LogState | None = None
    if table is not None:
        state = LogTable(spark, table, options.log_id).read().state
    log = open_log(options)
    minimum = maximum = acknowledged = error = None
    try:
        bounds = log.bounds()
        minimum, maximum = bounds.start, bounds.end
        acknowledged = log.acknowledged_by_master()
    except MasterError as caught:
        error = str(caught)
    return LogStatus(
        id=options.id,
        epoch=None if state is None else state.epoch,
        first=None if state is None else state.first,
        position=None if state is None else state.offset,
        master_minimum=minimum,
        master_maximum=maximum,
        acknowledged=acknowledged,
        writer=None if state is None else str(state.writer),
        master_error=error,
    )


def status_table(statuses: list[LogStatus]) -> Table:
    """The statuses for a person."""
    table = Table(box=None, pad_edge=False)
    for name in ("log", "epoch", "from", "position", "master has", "lag", "acknowledged"):
        table.add_column(name, justify="left" if name == "log" else "right")
    for one in statuses:
        held = f"[{number(one.master_minimum)}, {number(one.master_maximum)})".replace("[", "\\[", 1)
        table.add_row(
            one.id,
            number(one.epoch),
            number(one.first),
            number(one.position),
            one.master_error or held,
            size(one.lag_bytes),
            number(one.acknowledged),
        )
    return table
