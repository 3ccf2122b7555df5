"""A table as a day of one-second commits leaves it, and what ``logtwin maintain`` makes of it."""

import os
import time
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.config.configuration import parse
from pipeline.operate.maintain import Maintenance, MaintenanceStep
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.state.fence import this_writer
from sinks.tables import LOG
from sinks.warehouse import ensure_tables
from sources.offsets import Offset
from tests.sinks.long_log import MASTER, file_of
from tests.sinks.many_commits import COMMIT_BYTES, COMMIT_RECORDS, add_commits
from tests.sinks.one_log import OneLog


def log_path(warehouse: Path) -> str:
    return LOG.path(str(warehouse))


def newest(spark: SparkSession, warehouse: Path) -> Snapshot:
    found = KernelTable(spark, log_path(warehouse)).snapshot()
    assert found is not None
    return found


def replicate_a_day(spark: SparkSession, warehouse: Path, commits: int, recent: int) -> int:
    """Table log after `commits` commits of data, one a second until now. `recent` commits ago there was a checkpoint.

    Returns the version of that.
    """
    ensure_tables(spark, str(warehouse))
    path = log_path(warehouse)
    table = OneLog(spark, path, MASTER.log_id)
    state = table.claim(this_writer()).moved_to(Offset(COMMIT_BYTES), first=Offset(0), ledger=[])
    table.commit(table.read(), state, [file_of(path, 0, COMMIT_RECORDS)])
    table.run_hooks()
    add_commits(Path(path), commits - recent - 1, newest_age_s=recent)
    old = newest(spark, warehouse)
    KernelTable(spark, path).checkpoint(old)
    then = time.time() - recent
    for checkpoint in Path(path, "_delta_log").glob(f"*{old.version}.checkpoint.parquet*"):
        os.utime(checkpoint, (then, then))
    add_commits(Path(path), recent)
    return old.version


def maintain(spark: SparkSession, warehouse: Path, log_hours: float) -> list[MaintenanceStep]:
    log = {"id": str(MASTER.log_id), "path": str(warehouse)}
    config = {"warehouse": str(warehouse), "maintain": {"log_hours": log_hours}, "logs": [log]}
    return list(Maintenance(spark, parse(config, where="test"), dry_run=False).run())
