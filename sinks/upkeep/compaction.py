"""Merge small files of a table into large ones with the same rows, log by log, while streams commit.

Files are merged in the order of their offsets, and a large file in between ends a group, so the files of a log follow
each other as its commits did. Reads by offset depend on that: verify, rebuild and repair read every file once, front to
back, and retention removes whole files. If rows were sorted by topic, as OPTIMIZE does, every file would spread over
all offsets. Queries by time lose nothing: a log is in the order of its store timestamps. The partitions of a Kafka
topic share files: those are merged in the order in which they were written, which is that of the topic's commits.

Tasks write the new files (`merge`, by pyarrow), and one Kernel commit exchanges them. A file that cannot be read, or
has another number of rows than the Delta log says, is the task's error, and no new file is written. The commit does not
conflict with rows that the stream adds meanwhile, and is refused if anybody removed one of the files that were read. On
a local disk it takes the lock that all commits of logtwin take, which OPTIMIZE's own commit would not. A kill leaves
files that no commit names: `sinks/upkeep/vacuum.py` removes them, and the next run begins again.

The Delta log is read once for all logs of a table, and again once that is a while ago: a commit that is built on an old
version compares itself with each one since, and on a local disk all others wait for it meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from sinks.delta.actions import Partition
from sinks.delta.data_file import DataFile, lower_bound, upper_bound
from sinks.delta.delta_log import StoredFile
from sinks.delta.files import FileWriter, batches_of, in_columns, new_name, open_parquet, row_groups
from sinks.delta.kernel import KernelConflict, KernelTable, Snapshot
from sinks.delta.spark_jobs import JobFacts, run_each
from sinks.storage.errors import failed_by
from sinks.tables import IS_CURRENT, LOG_ID, TableSpec
from sources.errors import ReplicaError
from sources.offsets import LogId, Offset

_ORDERS = ("offset", "start", "valid_to")
"""A table is ordered by the first of these columns that it has statistics of."""
_GROUPS_A_COMMIT = 16  # the most work that a conflict or a kill can throw away
_READ_AGAIN_S = 30.0
_log = logging.getLogger(__name__)
_ROWS_AT_ONCE = 16_384


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


@dataclass(frozen=True, slots=True)
class _Found:
    """A version of the table, its files by path, and the groups of each log; None: of files that logs share."""

    on: Snapshot
    files: dict[str, StoredFile]
    groups: dict[LogId | None, list[Group]]
    read_at_s: float


class Compactor:
    """Merges the files that `logs` have in the table `spec` of a warehouse. Driver only.

    With `shares` it also merges the files that have rows of several of them. With a `pace`, which is called before
    each, a Spark job and a commit have one group, otherwise several.
    """

    def __init__(
        self,
        spark: SparkSession,
        spec: TableSpec,
        path: str,
        logs: Sequence[LogId],
        sizes: Sizes,
        *,
        shares: bool = False,
        pace: Callable[[], None] | None = None,
    ) -> None:
        self._spark = spark
        self._spec = spec
        self._table = KernelTable(spark, path)
        self._logs = {str(log_id): log_id for log_id in logs}
        self._shares = shares
        self._sizes = sizes
        self._at_once = _GROUPS_A_COMMIT if pace is None else 1
        self._pace = pace or (lambda: None)
        self._order = next(name for name in _ORDERS if name in spec.statistics)
        # Older versions cut long ids in their statistics.
        self._least = {bound: name for name in self._logs for bound in (lower_bound(name, LOG_ID.type), name)}
        self._greatest = {bound: name for name in self._logs for bound in (upper_bound(name, LOG_ID.type), name)}
        self._last: _Found | None = None

    def plan(self, log_id: LogId | None) -> Compaction:
        """Say what `run` would do."""
        return _tally(self._found().groups.get(log_id, ()))

    def run(self, log_id: LogId | None) -> Compaction:
        """Merge all groups of a log, or with None of the files that logs share.

        Groups whose files somebody else exchanged meanwhile are left as they are. Raises ReplicaError naming a file
        that cannot be read.
        """
        found = self._found()
        left, done, written = found.groups.pop(log_id, []), list[Group](), list[DataFile]()
        while left:
            self._pace()  # which may take long
            if time.monotonic() - found.read_at_s > _READ_AGAIN_S:
                found = self._found()
                left = found.groups.pop(log_id, [])
                if not left:
                    break
            part, left = left[: self._at_once], left[self._at_once :]
            made = self._merge(log_id, part)
            if self._commit(found, log_id, [one.path for group in part for one in group], made):
                done += part
                written += made
        if done:
            self._table.run_hooks()
        return _tally(done, written)

    def _found(self) -> _Found:
        if self._last is None or time.monotonic() - self._last.read_at_s > _READ_AGAIN_S:
            self._last = self._read()
        return self._last

    def _read(self) -> _Found:
        read_at_s, snapshot = time.monotonic(), self._table.existing()
        # The current versions of metadata are one file, which every change exchanges.
        equal = {IS_CURRENT.name: False} if self._spec.partitioning else {}
        files = {file.path: file for file in self._table.files(snapshot, equal)}
        candidates: dict[LogId | None, list[Candidate]] = {}
        for file in files.values():
            if (one := self._candidate(file)) is not None:
                candidates.setdefault(one[0], []).append(one[1])
        found = {log_id: groups(of_log, self._sizes) for log_id, of_log in candidates.items()}
        return _Found(snapshot, files, found, read_at_s)

    def _candidate(self, file: StoredFile) -> tuple[LogId | None, Candidate] | None:
        """A file to merge, and whose it is; None if others may have rows in it, or the Delta log says too little."""
        statistics = file.statistics()
        least, greatest = statistics.get("minValues", {}), statistics.get("maxValues", {})
        if "numRecords" not in statistics or self._order not in least:
            return None
        lowest: str | None
        highest: str | None
        if self._spec.partitioning:
            lowest = highest = file.partition()[LOG_ID.name]
        else:
            lowest, highest = self._least.get(least.get(LOG_ID.name)), self._greatest.get(greatest.get(LOG_ID.name))
        is_shared = lowest != highest
        if lowest is None or highest is None or lowest not in self._logs or (is_shared and not self._shares):
            return None
        first = (file.modified_ms,) if is_shared else least[self._order]
        log_id = None if is_shared else self._logs[lowest]
        return log_id, Candidate(first, file.path, file.size_bytes, statistics["numRecords"])

    def _partition(self, log_id: LogId | None) -> Partition:
        return {LOG_ID.name: str(log_id), IS_CURRENT.name: False} if self._spec.partitioning else {}

    def _merge(self, log_id: LogId | None, part: Sequence[Group]) -> list[DataFile]:
        """Merge groups in one Spark job with a task for each. Raises what a task reported."""
        facts = JobFacts(
            problem=f"the Spark job that merges files of {self._table.path} failed",
            log=log_id,
            hint="Nothing was changed; run it again.",
        )
        merge = Merging(self._spec, self._table.path, self._partition(log_id))
        return run_each(self._spark, merge, [_merge_of(group) for group in part], facts)

    def _commit(self, found: _Found, log_id: LogId | None, merged: Sequence[str], written: Sequence[DataFile]) -> bool:
        partition = self._partition(log_id)
        try:
            self._table.rearrange(
                found.on, [found.files[path] for path in merged], [(partition, file) for file in written]
            )
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


@dataclass(frozen=True, slots=True)
class Merge:
    """Files that become one: their paths in order, their number of rows, and the offset for `new_name`."""

    start: Offset
    records: int
    paths: Sequence[str]


@dataclass(frozen=True, slots=True)
class Merging:
    """The task function, picklable: merges files of `spec` in `folder`, all of one `partition`."""

    spec: TableSpec
    folder: str
    partition: Partition

    def __call__(self, what: Merge) -> DataFile:
        """Write one file with the rows of `what`. Raises ReplicaError."""
        batches = (batch for path in what.paths for batch in self._read(path))
        with FileWriter(self.spec, self.folder, new_name(what.start)) as writer:
            for rows in row_groups(batches):
                writer.write(rows)
            merged = writer.finish()
            if merged.records != what.records:
                expected = f"{what.records} rows in {len(what.paths)} files"
                raise self._failure(", ".join(what.paths[:1]), expected, merged.records)
        return merged

    def _read(self, path: str) -> Iterator[pa.RecordBatch]:
        names = [name for name in self.spec.schema.names if name not in self.partition]
        try:
            with open_parquet(self.folder, path) as parquet:
                for batch in batches_of(parquet, _ROWS_AT_ONCE, names):
                    yield self._complete(batch)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise self._failure(path, "a file of the table", error) from error

    def _complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Put `batch` into the table's columns. Files that Spark wrote lack those of the partition."""
        schema = self.spec.schema.remove_metadata()
        for field in (field for field in schema if field.name in self.partition):
            batch = batch.append_column(
                field, pa.repeat(pa.scalar(self.partition[field.name], field.type), batch.num_rows)
            )
        return in_columns(batch, schema, self.spec.growing)

    def _failure(self, path: str, expected: str, found: object) -> ReplicaError:
        return failed_by(found)(
            f"the data file {self.folder.rstrip('/')}/{path} cannot be merged with others",
            expected=expected,
            found=found,
            hint="Nothing was changed. Run logtwin verify, which finds what is damaged, then logtwin repair.",
        )
