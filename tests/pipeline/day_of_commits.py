"""A table as a day of one-second commits leaves it, and what ``logtwin maintain`` makes of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

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

_ROUNDS = 5


@dataclass(frozen=True)
class Figures:
    """Seconds that the newest version takes to open, and a small commit; files of the table and of its Delta log."""

    open_s: float
    commit_s: float
    data_files: int
    log_entries: int


def comparison(before: Figures, after: Figures) -> str:
    """For whoever reads the output: absolute times say little about another machine."""
    faster = f"opens {before.open_s / after.open_s:.1f} x and commits {before.commit_s / after.commit_s:.1f} x as fast"
    return f"{before}\n{after}\n{faster}"


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


def figures(spark: SparkSession, warehouse: Path) -> Figures:
    table = OneLog(spark, log_path(warehouse), MASTER.log_id)
    files = KernelTable(spark, log_path(warehouse)).files(newest(spark, warehouse), {"log_id": str(MASTER.log_id)})
    entries = len(list(Path(log_path(warehouse), "_delta_log").iterdir()))
    opens = [_seconds(table.read) for _ in range(_ROUNDS)]
    commits = [_seconds(lambda: table.claim(this_writer())) for _ in range(_ROUNDS)]
    return Figures(median(opens), median(commits), len(files), entries)


def versions(warehouse: Path, suffix: str) -> list[int]:
    """Of which versions the Delta log has a file that ends so."""
    return sorted(int(path.name[:20]) for path in Path(log_path(warehouse), "_delta_log").glob(f"[0-9]*{suffix}"))


def _seconds(action: Callable[[], object]) -> float:
    since = time.monotonic()
    action()
    return time.monotonic() - since
