"""What VACUUM takes, and what it must not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.batch.split_report import Damaged
from sinks.books.quarantine import open_quarantine, quarantine_row
from sinks.delta.kernel import KernelTable
from sinks.state.fence import this_writer
from sinks.state.position import LogTable
from sinks.tables import LOG, QUARANTINE
from sinks.upkeep.vacuum import commit_owed, vacuum
from sinks.warehouse import ensure_tables
from sources.loss import Condition
from sources.offsets import Offset, OffsetRange
from tests.sinks.batches import offsets
from tests.sinks.long_log import file_of
from tests.sinks.memory_master import BROKER_A

pytestmark = pytest.mark.spark
WEEK_H = 168.0


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """Table log with records 0 to 5, committed ten days ago."""
    ensure_tables(spark, str(tmp_path))
    path = LOG.path(str(tmp_path))
    table = KernelTable(spark, path)
    file = file_of(path, 0, 5)
    snapshot = table.snapshot()
    assert snapshot is not None
    table.commit(snapshot, [file])
    age(Path(path) / file.name, days=10)
    return path


def age(file: Path, days: float) -> None:
    then = time.time() - days * 86_400
    os.utime(file, (then, then))


def parquet_files(path: str) -> set[str]:
    return {file.name for file in Path(path).glob("*.parquet")}


def test_a_crashed_batchs_file_goes_and_what_is_committed_or_young_stays(spark: SparkSession, path: str) -> None:
    committed = parquet_files(path)
    orphan, young = file_of(path, 5, 10), file_of(path, 5, 10)
    age(Path(path) / orphan.name, days=7.1)
    age(Path(path) / young.name, days=6.9)
    before = sorted(Path(path, "_delta_log").glob("*.json"))
    for dry_run in (True, False, False):
        done = vacuum(spark, path, WEEK_H, dry_run=dry_run)
        is_there = dry_run or done.files == 3
        assert (done.removed, done.removed_bytes) == ((1, orphan.size_bytes) if is_there else (0, 0))
        assert parquet_files(path) == committed | {young.name} | ({orphan.name} if dry_run else set())
    assert sorted(Path(path, "_delta_log").glob("*.json")) == before  # a commit of its own would take no lock
    assert offsets(Path(path).parent) == [0, 100, 200, 300, 400]


def test_all_of_very_many_go(spark: SparkSession, path: str) -> None:
    for number in range(1100):
        orphan = Path(path) / f"part-{number}.parquet"
        orphan.touch()
        age(orphan, days=8)
    assert vacuum(spark, path, WEEK_H, dry_run=False).removed == 1100
    assert len(parquet_files(path)) == 1


def test_what_was_merged_lately_stays_for_who_reads_it(spark: SparkSession, path: str) -> None:
    table = KernelTable(spark, path)
    snapshot = table.snapshot()
    assert snapshot is not None
    files = table.files(snapshot, {"log_id": str(BROKER_A)})
    table.rearrange(snapshot, files, [({}, file_of(path, 0, 5))])
    assert vacuum(spark, path, WEEK_H, dry_run=False).removed == 0
    assert len(parquet_files(path)) == 2


def test_quarantined_bytes_that_a_commit_owes_are_committed_first(spark: SparkSession, path: str) -> None:
    """A job that was killed right after its commit, and stayed down for longer than the horizon."""
    warehouse = str(Path(path).parent)
    folder = QUARANTINE.path(warehouse)
    damaged = OffsetRange(Offset(500), Offset(600))
    with open_quarantine(folder, damaged.start) as writer:
        piece = Damaged(damaged, Condition.CHECKSUM_FAILURE, "no record", is_kept=True)
        writer.write(quarantine_row(BROKER_A, 0, piece, memoryview(b"x" * 100)))
        owed = writer.finish()
    table = LogTable(spark, path, BROKER_A)
    state = table.claim(this_writer())
    moved = state.moved_to(Offset(600), first=Offset(0), ledger=[], quarantined=[owed])
    table.commit(table.read(), moved, [file_of(path, 0, 5)], lost=[damaged])
    age(Path(folder) / owed.name, days=30)
    assert commit_owed(spark, warehouse) == 1
    assert vacuum(spark, folder, WEEK_H, dry_run=False).removed == 0
    assert spark.read.format("delta").load(folder).select("offset", "end").collect() == [(500, 600)]
    assert commit_owed(spark, warehouse) == 0
