"""Remove files of a table that no commit names: crashed batches left them, or they were merged, deleted or exchanged.

delta-spark's VACUUM finds them, in a dry run: it commits nothing, so it needs no lock on a local disk and runs while
streams commit, and it prints nothing to standard output. A file younger than the horizon is left alone, because a
running batch writes files first and commits them later.

Files of the quarantine are an exception: a commit to the table log owes them (`sinks.state.log_state.LogState`), and a
job that stopped right after it may stay down for longer than any horizon. They are committed before VACUUM looks for
files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.fs as pafs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sinks.books.quarantine import Quarantine
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.delta.spark_jobs import first_line
from sinks.state.fence import logs_in, state_in
from sinks.state.log_state import LogState
from sinks.storage.errors import failed_by
from sinks.storage.place import open_folder
from sinks.storage.removal import remove_files
from sinks.tables import KAFKA_LOG, LOG, QUARANTINE
from sinks.warehouse import absolute
from sources.offsets import LogId, Position

_SETTINGS = {
    # we decide on the horizon; the table's property is for VACUUMs of others
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # a table's folder is flat; the default would list it in 10,000 tasks, which takes half a minute
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}


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
    sizes = _sizes(path)
    names = _unnamed(spark, path, hours)
    if not dry_run:
        remove_files(spark, path, names, past_what_resists=True)  # the rest is left to the next run
    return Vacuumed(
        files=len(sizes),
        bytes=sum(sizes.values()),
        removed=len(names),
        removed_bytes=sum(sizes.get(name, 0) for name in names),
    )


def _unnamed(spark: SparkSession, path: str, hours: float) -> list[str]:
    session = spark.newSession()  # settings of its own
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    try:
        found = session.sql(f"VACUUM delta.`{path}` RETAIN {hours} HOURS DRY RUN").collect()
    except PySparkException as error:
        raise failed_by(error)(f"VACUUM of {path} failed", found=first_line(error), hint="Run it again.") from error
    return [row["path"].rpartition("/")[2] for row in found]


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


def _sizes(path: str) -> dict[str, int]:
    """The files in the folder of a table, which is flat: their names and sizes."""
    filesystem, inner = open_folder(path)
    found = filesystem.get_file_info(pafs.FileSelector(inner))
    return {one.base_name: one.size for one in found if one.is_file and one.base_name[0] not in "._"}
