"""Remove files of a table that no commit names: crashed batches left them, or they were merged, deleted or exchanged.

A task lists the folder and then reads the Delta log (`sinks/delta/delta_log.py`), so that neither the driver's Python
nor its JVM holds the names of a week's files while streams commit. It commits nothing, and needs no lock. A file
younger than the horizon is left alone, because a running batch writes files first and commits them later; so is one
that was removed since then, because a query may still read it.

Files of the quarantine are an exception: a commit to the table log owes them (`sinks.state.log_state.LogState`), and a
job that stopped right after it may stay down for longer than any horizon. They are committed before files are looked
for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow.fs as pafs
from pyspark.sql import SparkSession

from sinks.books.quarantine import Quarantine
from sinks.delta.actions import LATELY_MS
from sinks.delta.delta_log import named_files
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.delta.spark_jobs import JobFacts, run_each
from sinks.state.fence import logs_in, state_in
from sinks.state.log_state import LogState
from sinks.storage.errors import failed_by
from sinks.storage.hadoop import remove_files
from sinks.storage.place import open_folder
from sinks.tables import KAFKA_LOG, LOG, QUARANTINE
from sinks.warehouse import absolute
from sources.offsets import LogId, Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuumed:
    """The files in the folder of a table, and those that were or would be removed, with their sizes in bytes."""

    files: int
    bytes: int
    removed: int
    removed_bytes: int


def vacuum(spark: SparkSession, path: str, hours: float, *, dry_run: bool) -> Vacuumed:
    """Delete the files of the table at `path` that no commit of the last `hours` names. `dry_run` only counts them.

    Raises ReplicaError.
    """
    facts = JobFacts(
        problem=f"the Spark job that looks for files of {path} failed",
        log=None,
        hint="Nothing was changed; run it again.",
    )
    before_ms = time.time_ns() // 1_000_000 - round(hours * 3_600_000)
    # what was merged lately has only its age; for less than an hour nobody reads or writes (`check_horizon`)
    written_before_ms = before_ms - (LATELY_MS if hours >= 1 else 0)
    ((done, names),) = run_each(spark, partial(_unnamed, before_ms, written_before_ms), [path], facts)
    if not dry_run:
        remove_files(spark, path, names, past_what_resists=True)  # the rest is left to the next run
    return done


def _unnamed(before_ms: int, written_before_ms: int, path: str) -> tuple[Vacuumed, list[str]]:
    """The work of a task: find the files that no commit since `before_ms` names, and that are older than the other."""
    files = _files_in(path)  # first: what is committed meanwhile is in the version that is read next
    named = named_files(path, before_ms)
    gone = {
        one.base_name: one.size
        for one in files
        if one.mtime_ns < written_before_ms * 1_000_000 and one.base_name not in named
    }
    done = Vacuumed(
        files=len(files),
        bytes=sum(one.size for one in files),
        removed=len(gone),
        removed_bytes=sum(gone.values()),
    )
    return done, list(gone)


def commit_owed(spark: SparkSession, warehouse: str) -> int:
    """Commit the files of the quarantine that the logs' states owe. Returns the number of logs that owed any.

    This covers every log of the warehouse, also those of other jobs. Files that are committed already are skipped.
    Raises ReplicaError.
    """
    quarantine = Quarantine(spark, QUARANTINE.path(absolute(warehouse)))
    owing = 0
    for table in (LOG, KAFKA_LOG):
        snapshot = KernelTable(spark, table.path(absolute(warehouse))).snapshot()
        for log_id, state in () if snapshot is None else _states(snapshot):
            if state.offset is not None and state.quarantined:
                owing += quarantine.append(Position(log_id, state.epoch, state.offset), state.quarantined)
    return owing


def _states(snapshot: Snapshot) -> Iterator[tuple[LogId, LogState]]:
    domains = snapshot.domains()
    for log_id in logs_in(domains):
        if not log_id.has_partitions and (state := state_in(domains.get, log_id)) is not None:
            yield log_id, state


def _files_in(path: str) -> list[pafs.FileInfo]:
    """The files in the folder of a table, which is flat, without hidden ones. Raises ReplicaError."""
    filesystem, inner = open_folder(path)
    try:
        found = filesystem.get_file_info(pafs.FileSelector(inner))
    except OSError as error:
        raise failed_by(error)(f"the folder {path} cannot be listed", found=error, hint="Run it again.") from error
    return [one for one in found if one.is_file and one.base_name[0] not in "._"]
