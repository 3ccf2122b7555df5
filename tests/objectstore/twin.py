"""A master of files and its replica on an object store, which verbs are tried on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, parse
from pipeline.inspect.selection import ConfiguredLog
from pipeline.operate.maintain import Maintenance, MaintenanceStep
from pipeline.verify.run import Scope, verify_log
from tests.pipeline.faulty_log import FaultyLog


@dataclass(frozen=True)
class Twin:
    """The replica takes `batches` batches for what the master holds now."""

    spark: SparkSession
    folder: Path
    warehouse: str
    storage: Mapping[str, object]
    batches: int

    @property
    def log(self) -> FaultyLog:
        return FaultyLog(self.folder / "master")

    def config(self, **maintain: float) -> Config:
        return parse(self._values(maintain), where="test")

    def assert_equal(self) -> None:
        """Every byte that the master has."""
        config = self.config()
        found = verify_log(self.spark, config.warehouse, ConfiguredLog.alone(config.logs[0]), Scope())
        assert (found.problem, found.bytes) == (None, self.log.end)

    def maintain(self) -> dict[tuple[str, str], MaintenanceStep]:
        config = self.config(min_files=3, vacuum_hours=1e-4, log_hours=1e-4)
        return {(one.table, one.step): one for one in Maintenance(self.spark, config, dry_run=False).run()}

    def _values(self, maintain: dict[str, float]) -> dict[str, Any]:
        log = {"id": "rocketmq/test", "path": str(self.log.path), "on_loss": "record"}
        return {
            "warehouse": self.warehouse,
            "trigger_interval_s": 0.1,
            "storage": dict(self.storage),
            "maintain": maintain,
            "logs": [{**log, "max_bytes_per_trigger": len(self.log.everything()) // self.batches}],
        }
