"""Batches of ranges as the data source makes them, and replicas to give them to."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from sinks.batch.group import Group
from sinks.batch.proof import BatchResult, BatchStep
from sinks.batch.proof import no_step as no_step
from sinks.batch.replica import Replica, open_together
from sinks.state.log_state import LogState, Writer
from sinks.state.log_table import Held, LogTable
from sinks.tables import LEDGER, LOG
from sinks.values.incident import Incident
from sources.errors import LogtwinError
from sources.master import MasterLog, Planned, PlannedSplit, Session
from sources.offsets import Offset, OffsetRange
from tests.sinks.memory_master import BROKER_A, RecordingSession


def ranges(start: int, end: int, split: int = 10**9, log_id: str = "rocketmq/broker-a") -> list[Planned]:
    """The batch [start, end) in splits of `split` offsets."""
    batch = OffsetRange(Offset(start), Offset(end))
    return [PlannedSplit(log_id, batch, piece) for piece in batch.in_pieces(split)]


class Solo(Replica):
    """A replica that is a group by itself. `last` is what its last batch did."""

    def __init__(
        self,
        spark: SparkSession,
        warehouse: str,
        master: MasterLog,
        session: Session | None = None,
        writer: Writer | None = None,
        on_step: Callable[[BatchStep], None] = no_step,
    ) -> None:
        super().__init__(spark, warehouse, master, session or RecordingSession(), writer)
        self._group = Group(spark, warehouse, on_step)
        self.last: BatchResult | None = None

    def open(self) -> None:
        open_together([self])
        self.follow()

    def skip(self, incident: Incident) -> None:
        self._group.skip(self, incident)

    def __call__(self, planned: Sequence[Planned]) -> None:
        """Raises what went wrong."""
        outcome = self._group.apply(planned, {str(self.log_id): self}).get(str(self.log_id))
        if isinstance(outcome, LogtwinError):
            raise outcome
        self.last = self.last if outcome is None else outcome


def opened(
    spark: SparkSession,
    warehouse: Path,
    master: MasterLog,
    session: Session | None = None,
    on_step: Callable[[BatchStep], None] = no_step,
) -> Solo:
    replica = Solo(spark, str(warehouse), master, session, on_step=on_step)
    replica.open()
    return replica


def log(spark: SparkSession, warehouse: Path) -> DataFrame:
    """The log table, in order, as Spark reads it."""
    return spark.read.format("delta").load(LOG.path(str(warehouse))).orderBy("log_id", "epoch", "offset")


def rows(path: Path | str, *order: str) -> list[dict[str, Any]]:
    """The rows of the table at `path`, in the order of these columns. Read by delta-rs."""
    found: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: [row[name] for name in order])


def held(spark: SparkSession, warehouse: Path) -> Held:
    return LogTable(spark, LOG.path(str(warehouse)), BROKER_A).read()


def state(spark: SparkSession, warehouse: Path) -> LogState:
    found = held(spark, warehouse).state
    assert found is not None
    return found


def offsets(warehouse: Path) -> list[int]:
    """The offsets in the log table, in order, doubled where a record is there twice. Read by delta-rs."""
    found: list[int] = DeltaTable(LOG.path(str(warehouse))).to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
    return sorted(found)


def ledger(warehouse: Path) -> list[dict[str, Any]]:
    return rows(LEDGER.path(str(warehouse)), "log_id", "start")
