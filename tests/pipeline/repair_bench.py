"""A master of files that a test breaks, its replica to be repaired, and both looked at from outside."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from sinks.books.incidents import IncidentsTable
from sinks.healing.repair import Repair, Repaired
from sinks.healing.repair_steps import RepairStep
from sinks.state.log_state import LogState
from sinks.state.log_table import LogTable
from sinks.values.incident import Action
from sources.loss import Condition
from sources.offsets import LogId, OffsetRange
from sources.registry import open_log
from tests.pipeline import group_in_process
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.running import assert_covered, job_config, replicate_now
from tests.sinks.accounts import incident

TEST, OTHER = LogId.parse("rocketmq/test"), LogId.parse("rocketmq/other")
BATCH_BYTES = 30_000


def replicate_in_process(spark: SparkSession, config: Config) -> None:
    """``logtwin replicate --available-now`` without Spark's streaming and tasks: for what is not about replicating."""
    with pytest.MonkeyPatch.context() as here:
        group_in_process.use(here)
        replicate_now(spark, config)


@dataclass(frozen=True)
class Bench:
    """A master of files and its replica, equal at first, in a folder of their own."""

    spark: SparkSession
    folder: Path
    log_id: LogId = TEST

    @property
    def log(self) -> FaultyLog:
        return FaultyLog(self.folder / "master")

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def config(self) -> Config:
        return job_config(self.lake, id=str(self.log_id), path=str(self.log.path), max_bytes_per_trigger=BATCH_BYTES)

    def replicate(self) -> None:
        replicate_in_process(self.spark, self.config)

    def repair(
        self, on_step: Callable[[RepairStep], None] = lambda step: None, *, accept_master: bool = False
    ) -> Repaired:
        return self._repair(on_step).run(accept_master=accept_master)

    def look(self, *, accept_master: bool = False) -> Repaired:
        return self._repair(lambda step: None).look(accept_master=accept_master)

    def _repair(self, on_step: Callable[[RepairStep], None]) -> Repair:
        return Repair(self.spark, str(self.lake), open_log(self.config.logs[0]), on_step=on_step)

    def state(self, log_id: LogId | None = None) -> LogState:
        state = LogTable(self.spark, f"{self.lake}/log", log_id or self.log_id).read().state
        assert state is not None
        return state

    def holes(self) -> tuple[OffsetRange, ...]:
        return LogTable(self.spark, f"{self.lake}/log", self.log_id).read().holes.ranges

    def incidents(self) -> IncidentsTable:
        return IncidentsTable(self.spark, str(self.lake), self.log_id)

    def found(self, condition: Condition, start: int, end: int) -> None:
        """An incident as verify puts it on record."""
        self.incidents().record(0, [incident(start, end, condition, action=Action.REPORTED)])

    def rows(self, table: str, log_id: LogId | None = None) -> list[dict[str, Any]]:
        """A table's rows of one log, by offset or start. Read by delta-rs."""
        if not (self.lake / table).exists():
            return []
        rows: list[dict[str, Any]] = DeltaTable(f"{self.lake}/{table}").to_pyarrow_table().to_pylist()
        key = "start" if table == "ledger" else "offset"
        return sorted((row for row in rows if row["log_id"] == str(log_id or self.log_id)), key=lambda row: row[key])

    def offsets(self, table: str) -> list[int]:
        return [row["offset"] for row in self.rows(table)]

    def versions(self) -> dict[str, int]:
        return {name.parent.name: DeltaTable(name.parent).version() for name in self.lake.glob("*/_delta_log")}

    def check_ledger(self, log: bytes, end: int) -> None:
        """Its rows join from 0 to `end`, each with the checksum of the log's bytes."""
        rows = self.rows("ledger")
        assert {row["deleted_at"] for row in rows} <= {None}
        assert_covered(rows, log[:end])


def rewrite_the_second_record(log: FaultyLog) -> int:
    at = log.boundaries[1]
    log.rewrite_from(at, random.Random(3))
    return at


def outcome(bench: Bench) -> dict[str, Any]:
    """Everything a repair leaves, without what differs from run to run."""
    state = bench.state()
    rows = {name: bench.rows(name) for name in ("log", "ledger", "removed")}
    for row in rows["removed"]:
        del row["removed_at"]
    incidents = [(row.id, row.epoch, row.found.range, row.state) for row in bench.incidents().all()]
    position = (state.epoch, state.offset, state.branched_at, state.link, state.repair, state.ledger)
    return {**rows, "incidents": incidents, "position": position, "holes": bench.holes()}


def newest_file(bench: Bench) -> Path:
    adds = DeltaTable(f"{bench.lake}/log").get_add_actions(flatten=True)
    rows = zip(adds["path"].to_pylist(), adds["min.log_id"].to_pylist(), adds["max.offset"].to_pylist(), strict=True)
    _, path = max((greatest, str(path)) for path, least_id, greatest in rows if least_id == str(TEST))
    return bench.lake / "log" / path


def spoil(file: Path) -> None:
    """Where its pages are; the footer stays."""
    data = bytearray(file.read_bytes())
    data[100 : len(data) // 2] = bytes(len(data) // 2 - 100)
    file.write_bytes(data)
