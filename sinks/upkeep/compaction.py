"""Merge small files into large ones with the same rows, for one log in one table, while its stream commits.

Files are merged in the order of their offsets, and a large file in between ends a group, so the files of a log follow
each other as its commits did. Reads by offset depend on that: verify, rebuild and repair read every file once, front to
back, and retention removes whole files. If rows were sorted by topic, as OPTIMIZE does, every file would spread over
all offsets. Queries by time lose nothing: a log is in the order of its store timestamps. The partitions of a Kafka
topic share files: those are merged in the order in which they were written, which is that of the topic's commits.

Tasks write the new files (`sinks/upkeep/merge.py`), and one Kernel commit exchanges them. The commit does not conflict
with rows that the stream adds meanwhile, and is refused if anybody removed one of the files that were read. On a local
disk it takes the lock that all commits of logtwin take, which OPTIMIZE's own commit would not. A kill leaves files that
no commit names: VACUUM removes them, and the next run begins again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from sinks.delta.actions import Partition
from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile
from sinks.delta.file_statistics import lower_bound, upper_bound
from sinks.delta.kernel import KernelConflict, KernelTable, Snapshot
from sinks.delta.spark_jobs import JobFacts, run_tasks
from sinks.tables import IS_CURRENT, LOG_ID, TableSpec
from sinks.upkeep.merge import Merge, Merging, merged_file
from sources.offsets import LogId, Offset

_ORDERS = ("offset", "start", "valid_to")
"""A table is ordered by the first of these columns that it has statistics of."""
_GROUPS_A_COMMIT = 16  # the most work that a conflict or a kill can throw away
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes for merging: files are merged up to `target_bytes`.

    A file is small if at least `min_files` of its size fit into that. So at least so many become one, and a file that
    was merged to the full is not merged again.
    """

    target_bytes: int
    min_files: int

    def is_small(self, size_bytes: int) -> bool:
        return size_bytes * self.min_files <= self.target_bytes


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file as the Delta log describes it; `first` is its least value of the column that orders the table.

    If logs share the file, `first` is the time when it was written, in a tuple, because that is no offset.
    """

    first: Any
    path: str
    size_bytes: int
    records: int


Group = Sequence[Candidate]


@dataclass(frozen=True, slots=True)
class Compaction:
    """How many files were, or would be, merged into how many, and their bytes before and after."""

    files: int = 0
    into: int = 0
    bytes: int = 0
    bytes_after: int = 0


def groups(candidates: Iterable[Candidate], sizes: Sizes) -> list[Group]:
    """The groups of files that each become one, in order. Pure."""
    found: list[list[Candidate]] = [[]]
    room = sizes.target_bytes
    for one in sorted(candidates, key=lambda one: (one.first, one.path)):
        is_small = sizes.is_small(one.size_bytes)
        if not is_small or one.size_bytes > room:
            found.append([])
            room = sizes.target_bytes
        if is_small:
            found[-1].append(one)
            room -= one.size_bytes
    return [group for group in found if len(group) >= sizes.min_files]


class Compactor:
    """Merges one log's files in the table `spec` of a warehouse. Driver only.

    With `sharing` it merges the files that have rows of several logs, all of which are among these.
    """

    def __init__(
        self,
        spark: SparkSession,
        spec: TableSpec,
        path: str,
        log_id: LogId | None,
        sizes: Sizes,
        *,
        sharing: Sequence[LogId] = (),
    ) -> None:
        self._spark = spark
        self._spec = spec
        self._table = KernelTable(spark, path)
        self._log_id = log_id
        self._is_shared = bool(sharing)
        self._logs = tuple(map(str, sharing or (log_id,)))
        self._sizes = sizes
        self._order = next(name for name in _ORDERS if name in spec.statistics)
        # The current versions of metadata are one file, which every change exchanges.
        self._partition: Partition = {LOG_ID.name: str(log_id), IS_CURRENT.name: False} if spec.partitioning else {}

    def plan(self) -> Compaction:
        """Say what `run` would do."""
        *_, found = self._groups()
        return _tally(found)

    def run(self) -> Compaction:
        """Merge all groups. Groups whose files somebody else exchanged meanwhile are left as they are.

        Raises ReplicaError naming a file that cannot be read.
        """
        on, files, found = self._groups()
        done, written = list[Group](), list[DataFile]()
        for at in range(0, len(found), _GROUPS_A_COMMIT):
            part = found[at : at + _GROUPS_A_COMMIT]
            made = self._merge(part)
            if self._commit(on, [files[one.path] for group in part for one in group], made):
                done += part
                written += made
        self._table.run_hooks()
        return _tally(done, written)

    def _groups(self) -> tuple[Snapshot, dict[str, StoredFile], list[Group]]:
        snapshot = self._table.existing(self._log_id)
        filters = [self._partition] if self._partition else [{LOG_ID.name: name} for name in self._logs]
        files = {file.path: file for equal in filters for file in self._table.files(snapshot, equal)}
        candidates = [one for file in files.values() if (one := self._candidate(file)) is not None]
        return snapshot, files, groups(candidates, self._sizes)

    def _candidate(self, file: StoredFile) -> Candidate | None:
        """The candidate for a file; None if it may hold rows of another log, or the Delta log says too little of it."""
        statistics = file.statistics()
        least, greatest = statistics.get("minValues", {}), statistics.get("maxValues", {})
        if "numRecords" not in statistics or self._order not in least:
            return None
        if not self._partition and not self._is_ours(least.get(LOG_ID.name), greatest.get(LOG_ID.name)):
            return None
        if self._is_shared and least[LOG_ID.name] == greatest[LOG_ID.name]:
            return None
        first = (file.modified_ms,) if self._is_shared else least[self._order]
        return Candidate(first, file.path, file.size_bytes, statistics["numRecords"])

    def _is_ours(self, least: str | None, greatest: str | None) -> bool:
        """Whether a file has only rows of these logs, by its statistics, in which older versions cut long ids."""
        lowest = {bound for name in self._logs for bound in (name, lower_bound(name, LOG_ID.type))}
        highest = {bound for name in self._logs for bound in (name, upper_bound(name, LOG_ID.type))}
        return least in lowest and greatest in highest

    def _merge(self, part: Sequence[Group]) -> list[DataFile]:
        """Merge groups in one Spark job with a task for each. Raises what a task reported."""
        facts = JobFacts(
            problem=f"the Spark job that merges files of {self._table.path} failed",
            log=self._log_id,
            hint="Nothing was changed; run it again.",
        )
        merge = Merging(self._spec, self._table.path, self._partition)
        return [
            merged_file(made) for made in run_tasks(self._spark, merge, [_merge_of(group) for group in part], facts)
        ]

    def _commit(self, on: Snapshot, merged: Sequence[StoredFile], written: Sequence[DataFile]) -> bool:
        try:
            self._table.rearrange(on, merged, [(self._partition, file) for file in written])
        except KernelConflict as conflict:
            # The written files stay: a refused writer cannot always tell whether the commit was made.
            _log.info("%s: %s left as they are: %s", self._table.path, f"{len(merged)} files", conflict)
            return False
        return True


def _merge_of(group: Group) -> Merge:
    first = group[0].first
    start = first if isinstance(first, int) else 0  # for a shared file it is no offset
    return Merge(Offset(start), sum(one.records for one in group), [one.path for one in group])


def _tally(part: Sequence[Group], written: Sequence[DataFile] = ()) -> Compaction:
    files = [one for group in part for one in group]
    size_bytes = sum(one.size_bytes for one in files)
    return Compaction(len(files), len(part), size_bytes, sum(file.size_bytes for file in written))
