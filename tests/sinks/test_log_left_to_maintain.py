"""Who deletes from a Delta log, with the real Kernel: commits below a checkpoint that is empty must stay."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.delta.kernel import KernelTable
from sinks.tables import LOG
from sinks.upkeep.log_entries import LogEntry, LogFolder, expired
from sinks.warehouse import ensure_tables, leave_log_to_maintain

pytestmark = pytest.mark.spark
CLEAN_UP = "delta.enableExpiredLogCleanup"
MONTHS_AGO_S = 90 * 24 * 3600


def commits(folder: Path) -> list[int]:
    return sorted(int(file.stem) for file in folder.glob("*.json"))


def commit_to(table: KernelTable, version: int) -> None:
    """Commits as a job's, with what Kernel does after each."""
    while (on := table.existing()).version < version:
        table.commit(on, domains={"place": str(on.version)})
        table.run_hooks()


def write_checkpoint(spark: SparkSession, table: KernelTable) -> None:
    """As `maintain`: of a snapshot that was listed, after which alone Kernel 4.4 cleans up."""
    assert (listed := KernelTable(spark, table.path)).checkpoint(listed.existing())


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> KernelTable:
    """With a checkpoint of version 10."""
    ensure_tables(spark, str(tmp_path))
    made = KernelTable(spark, LOG.path(str(tmp_path)))
    commit_to(made, 12)
    return made


def test_kernel_deletes_nothing_below_a_checkpoint_that_is_empty(spark: SparkSession, table: KernelTable) -> None:
    folder = Path(table.path) / "_delta_log"
    (folder / f"{10:020d}.checkpoint.parquet").write_bytes(b"")  # as a power failure leaves it
    (folder / f".{10:020d}.checkpoint.parquet.crc").unlink(missing_ok=True)
    for file in folder.iterdir():
        if file.is_file():
            os.utime(file, (time.time() - MONTHS_AGO_S,) * 2)
    commit_to(table, 21)
    write_checkpoint(spark, table)
    assert all((folder / f"{version:020d}.checkpoint.parquet").stat().st_size for version in (20, 21))
    assert commits(folder) == list(range(22))
    assert [one.name for one in gone(table, datetime.now(UTC) - timedelta(days=1)) if ".json" in one.name] == []
    # and below one that is whole, ours deletes
    assert {one.version for one in gone(table, datetime.now(UTC) + timedelta(days=1))} == set(range(21))


def gone(table: KernelTable, before: datetime) -> list[LogEntry]:
    folder = LogFolder(table.path)
    return expired(folder.entries(), before, folder.is_whole)


def test_a_table_of_an_older_version_is_told_at_the_next_start(
    spark: SparkSession, table: KernelTable, tmp_path: Path
) -> None:
    for_all = {CLEAN_UP: "true", "delta.logRetentionDuration": "interval 4 days"}
    table.set_properties(table.existing(), for_all)
    before = table.existing()
    ensure_tables(spark, str(tmp_path))
    after = table.existing()
    assert after.properties() == before.properties() | {CLEAN_UP: "false"}
    assert after.version == before.version + 1
    assert after.domains() == before.domains()
    ensure_tables(spark, str(tmp_path))
    assert table.existing().version == after.version


def test_beside_a_job_that_commits_both_get_through(spark: SparkSession, table: KernelTable) -> None:
    """The job's next commit, built on what was there before, meets a conflict and is done anew."""
    table.set_properties(table.existing(), {CLEAN_UP: "true"})
    other = KernelTable(spark, table.path)
    stale = other.existing()
    table.commit(table.existing(), domains={"place": "job"})
    leave_log_to_maintain(other)
    assert table.existing().properties()[CLEAN_UP] == "false"
    assert other.existing().domain("place") == "job"
    assert other.existing().version == stale.version + 2
