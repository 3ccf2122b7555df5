"""What VACUUM takes, and what it must not."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sinks.books.quarantine import open_quarantine, quarantine_row
from sinks.delta.kernel import KernelTable
from sinks.state.fence import this_writer
from sinks.tables import LOG, QUARANTINE
from sinks.upkeep.vacuum import commit_owed, vacuum
from sinks.values.incident import Action
from sinks.warehouse import ensure_tables
from sources.errors import ReplicaError
from sources.offsets import Offset, OffsetRange
from tests.sinks.accounts import incident
from tests.sinks.batches import offsets, rows
from tests.sinks.long_log import file_of
from tests.sinks.memory_master import BROKER_A
from tests.sinks.one_log import OneLog

WEEK_H = 168.0


def age(file: Path, days: float) -> None:
    then = time.time() - days * 86_400
    os.utime(file, (then, then))


def parquet_files(path: str) -> set[str]:
    return {file.name for file in Path(path).glob("*.parquet")}


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_no_commit_named_lately_goes_and_all_else_stays(
    plain: SparkSession, tmp_path: Path, checkpoint: bool
) -> None:
    """A young one, one that a merge took out just now, those of the table, and a dry run's. The table says what it has
    in commits, or in a checkpoint."""
    ensure_tables(plain, str(tmp_path))
    path = LOG.path(str(tmp_path))
    table = KernelTable(plain, path)
    first, second = (replace(one, modified_ms=0) for one in (file_of(path, 0, 5), file_of(path, 5, 10)))
    table.commit(table.existing(), [first, second])
    for file in (first, second):
        age(Path(path) / file.name, days=10)
    merged = [file for file in table.files(table.existing(), {"log_id": str(BROKER_A)}) if file.path == first.name]
    table.rearrange(table.existing(), merged, [({}, file_of(path, 0, 5))])
    if checkpoint:
        DeltaTable(path).create_checkpoint()
    young = file_of(path, 10, 15)
    age(Path(path) / young.name, days=7.05)  # a merge may have taken it out less than seven days ago
    kept = parquet_files(path)
    assert len(kept) == 4
    for number in range(9):
        orphan = Path(path) / f"part-{number}.parquet"
        orphan.write_bytes(b"123")
        age(orphan, days=7.1)
    before = sorted(Path(path, "_delta_log").glob("*.json"))
    for dry_run, left in ((True, 13), (False, 4)):
        done = vacuum(plain, path, WEEK_H, dry_run=dry_run)
        assert (done.files, done.removed, done.removed_bytes) == (13, 9, 27)
        assert len(parquet_files(path)) == left
    assert parquet_files(path) == kept
    assert vacuum(plain, path, 24 * 10.1, dry_run=False).removed == 0
    assert vacuum(plain, path, 0, dry_run=False).removed == 2  # the merged one, and the young one, when nobody runs
    assert sorted(Path(path, "_delta_log").glob("*.json")) == before  # a commit of its own would take no lock
    assert offsets(tmp_path) == [at * 100 for at in range(10)]
    Path(path, "_delta_log").rename(tmp_path / "aside")  # somebody restores it
    with pytest.raises(ReplicaError, match="is gone"):
        vacuum(plain, path, 0, dry_run=False)
    assert parquet_files(path)


def test_quarantined_bytes_that_a_commit_owes_are_committed(plain: SparkSession, tmp_path: Path) -> None:
    """A job that was killed right after its commit, and stayed down for longer than the horizon."""
    warehouse = str(tmp_path)
    ensure_tables(plain, warehouse)
    path = LOG.path(warehouse)
    folder = QUARANTINE.path(warehouse)
    damaged = OffsetRange(Offset(500), Offset(600))
    with open_quarantine(folder, damaged.start) as writer:
        piece = incident(500, 600, action=Action.QUARANTINED)
        writer.write(quarantine_row(BROKER_A, 0, piece, memoryview(b"x" * 100)))
        owed = writer.finish()
    table = OneLog(plain, path, BROKER_A)
    state = table.claim(this_writer())
    moved = state.moved_to(Offset(600), first=Offset(0), ledger=[], quarantined=[owed])
    table.commit(table.read(), moved, [file_of(path, 0, 5)], lost=[damaged])
    assert commit_owed(plain, warehouse) == 1
    assert [(row["offset"], row["end"]) for row in rows(folder)] == [(500, 600)]
    assert commit_owed(plain, warehouse) == 0
