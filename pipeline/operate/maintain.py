"""Upkeep: keeps a warehouse small and quick, while jobs replicate into it.

``logtwin maintain`` does it as fast as it can; a job does the same beside its batches (`pipeline/operate/upkeep.py`).

    per log and table   small files are merged (`sinks/upkeep/compaction.py`)
    per log             what is too old, or too much, is deleted (`sinks/upkeep/retention.py`)
    ledger              rows of past hours are joined (`sinks/upkeep/ledger.py`)
    per table           a checkpoint of the Delta log; files that no commit names go (VACUUM); so do old log entries
    per warehouse       files of ended jobs whose logs other jobs tell (`pipeline/monitoring/run_state.py`)

Each step is one commit, or a deletion of what nobody needs. Killed anywhere, it can be run again; run twice, the second
run changes nothing. Tables that do not exist are skipped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, MaintainConfig
from pipeline.inspect.selection import held_topics, subjects
from pipeline.monitoring.display import count, duration, number, size
from pipeline.monitoring.run_state import tidy
from pipeline.monitoring.upkeep import Done, Telling
from pipeline.verify.summary import describe, incident_of
from sinks.books.incidents import IncidentsTable
from sinks.delta.kernel import KernelTable
from sinks.storage.errors import is_no_room
from sinks.tables import (
    INCIDENTS,
    KAFKA_LOG,
    KAFKA_REMOVED,
    KEY_VALUES,
    LEDGER,
    LOG,
    QUARANTINE,
    SCHEMA_CHANGES,
    TABLES,
    UNFIT,
    TableSpec,
    log_table,
    metadata_table,
)
from sinks.typed.table import typed_specs
from sinks.upkeep.compaction import Compactor, Sizes
from sinks.upkeep.ledger import LedgerJoin
from sinks.upkeep.log_entries import LogFolder, expired
from sinks.upkeep.retention import Keep, ReplicaRetention
from sinks.upkeep.vacuum import commit_owed, vacuum
from sinks.warehouse import absolute, leave_log_to_maintain, names_in
from sources.errors import ConfigurationError, LogtwinError, StorageUnreachable
from sources.metadata import KAFKA_PARTITIONS
from sources.offsets import LogId
from sources.registry import open_log

_log = logging.getLogger(__name__)

SHORTEST_VACUUM_HOURS = 1.0
_GB = 10**9
_FEW = (INCIDENTS, KEY_VALUES, SCHEMA_CHANGES)  # tables with few files: replaced as a whole, or seldom written
_SHARED = (LOG, KAFKA_LOG, LEDGER)  # tables whose files may have rows of several logs
_PARTITIONS = metadata_table(KAFKA_PARTITIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceStep:
    """One step that was done, or with --dry-run would be. docs/json.md documents every field.

    What it counts depends on the step. `merge`: the files that were merged, and those that they became. `retain`: no
    files, but `records`, and the bytes of the master's log that the replica has. `checkpoint`: nothing. `vacuum`: the
    files in the table's folder. `log`: those of its Delta log. `join`: no files but rows of the ledger, and the rows
    that they became; the bytes of the master's log in them; as `records` the ranges that are damaged. In a dry run
    `bytes_after` of `merge` is None, because it is unknown.
    """

    table: str
    step: str
    log: str | None = None
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int | None = 0
    records: int = 0
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def and_also(self, other: MaintenanceStep) -> MaintenanceStep:
        """Add the same step of another log of the table."""
        known = self.bytes_after is not None and other.bytes_after is not None
        return replace(
            self,
            log=None,
            files_before=self.files_before + other.files_before,
            files_after=self.files_after + other.files_after,
            bytes_before=self.bytes_before + other.bytes_before,
            bytes_after=(self.bytes_after or 0) + (other.bytes_after or 0) if known else None,
            records=self.records + other.records,
            seconds=self.seconds + other.seconds,
        )

    @property
    def done(self) -> Done:
        """The work of the step, as `Upkeep` counts it."""
        if self.step == "merge":
            return Done(merged_files=self.files_before, merged_into=self.files_after)
        if self.step == "join":
            return Done()  # what it counts are no files, and records that are damaged
        return Done(deleted_files=self.files_before - self.files_after, deleted_records=self.records)


def check_horizon(settings: MaintainConfig, *, no_job_runs: bool) -> None:
    """Check that VACUUM cannot delete the files of a batch that is under way. Raises ConfigurationError."""
    if settings.vacuum_hours < SHORTEST_VACUUM_HOURS and not no_job_runs:
        raise ConfigurationError(
            "vacuum_hours is too short while a job may run",
            expected=f"at least {SHORTEST_VACUUM_HOURS:g}",
            found=f"{settings.vacuum_hours:g}",
            hint="A batch writes files before it commits them. With --no-job-runs, and no job running, it may be less.",
        )


class Maintenance:
    """All steps for the logs of a configuration, and the tables of its warehouse. Driver only.

    With a `pace` the work is done in small pieces, one task a Spark job: it is called before each, and may wait, or
    raise.
    """

    def __init__(
        self, spark: SparkSession, config: Config, *, dry_run: bool, pace: Callable[[], None] | None = None
    ) -> None:
        self._spark = spark
        self._config = config
        self._pace = pace
        self._settings = config.maintain
        self._warehouse = absolute(config.warehouse)
        self._logs = [log.log_id for log in config.logs]
        # A map is made from every record of its log, and rebuilt from them after a repair.
        self._kept_whole = {log.log_id for log in config.logs if open_log(log).traits.keyed_state is not None}
        self._topics = held_topics(config)
        self._partitions = [log_id for topic in self._topics for log_id, _ in topic.partitions()]
        self._dry_run = dry_run
        self._typed: list[TableSpec] = []
        self._now = datetime.now(UTC)

    def run(self, on_error: Callable[[LogtwinError], None] | None = None) -> Iterator[MaintenanceStep]:
        """Do the steps, one each time the iterator advances. Raises ReplicaError; finished steps stay done.

        With `on_error` a step that fails keeps no other from being done, unless storage is away. What a full disk fails
        never does: later steps delete files. Its first error comes last.
        """
        there = names_in(self._spark, self._warehouse)
        tables = [spec for spec in TABLES if spec.name in there and self._is_table(spec)]
        self._typed = typed_specs(self._spark, self._warehouse)
        tables += self._typed
        if not self._dry_run:
            with suppress(OSError):  # reports of ended jobs: the next run finds them, too
                tidy(self._warehouse)
            for spec in tables:  # before the first commit, which could write a checkpoint and clean the log up
                leave_log_to_maintain(KernelTable(self._spark, self._path(spec)))
        full: LogtwinError | None = None
        for step in self._steps(tables):
            if self._pace is not None:
                self._pace()
            since = time.monotonic()
            try:
                done = step()
            except LogtwinError as error:
                if is_no_room(error):
                    full = full or error
                elif on_error is None or isinstance(error, StorageUnreachable):
                    raise
                else:
                    on_error(error)
            else:
                yield replace(done, seconds=time.monotonic() - since)
        if full is not None:
            raise full

    def _steps(self, tables: Sequence[TableSpec]) -> Iterator[Callable[[], MaintenanceStep]]:
        for spec in tables:
            if spec not in _FEW:
                yield from self._merges(spec)
        for spec, logs in ((LOG, self._logs), (KAFKA_LOG, self._partitions)):
            if spec in tables and LEDGER in tables:
                yield from (partial(self._retain, spec, log_id) for log_id in logs)
            if logs and spec in tables and LEDGER in tables:
                yield partial(self._join, spec)
        for spec in tables:
            yield partial(self._checkpoint, spec)
            yield partial(self._vacuum, spec)
            yield partial(self._log_entries, spec)

    def _merges(self, spec: TableSpec) -> Iterator[Callable[[], MaintenanceStep]]:
        logs = self._logs_in(spec)
        shares = len(logs) > 1 and (spec in _SHARED or spec in self._typed)
        sizes = Sizes(target_bytes=self._settings.target_file_bytes, min_files=self._settings.min_files)
        compactor = Compactor(self._spark, spec, self._path(spec), logs, sizes, shares=shares, pace=self._pace)
        yield from (partial(self._merge, spec, compactor, log_id) for log_id in (*logs, *([None] if shares else [])))

    def _logs_in(self, spec: TableSpec) -> Sequence[LogId]:
        if spec.name == _PARTITIONS.name:
            return [topic.log_id for topic in self._topics]
        if spec in (KAFKA_LOG, KAFKA_REMOVED):
            return self._partitions
        return [*self._logs, *self._partitions] if spec in (LEDGER, QUARANTINE, UNFIT, *self._typed) else self._logs

    def _merge(self, spec: TableSpec, compactor: Compactor, log_id: LogId | None) -> MaintenanceStep:
        done = compactor.plan(log_id) if self._dry_run else compactor.run(log_id)
        return MaintenanceStep(
            table=spec.name,
            step="merge",
            log=None if log_id is None else str(log_id),
            files_before=done.files,
            files_after=done.into,
            bytes_before=done.bytes,
            bytes_after=None if self._dry_run and done.files else done.bytes_after,
        )

    def _retain(self, spec: TableSpec, log_id: LogId) -> MaintenanceStep:
        retention = ReplicaRetention(self._spark, self._warehouse, log_id)
        if not self._dry_run:
            retention.settle(self._now)
        plan = retention.plan(self._keep(log_id), self._now)
        records = 0 if self._dry_run else retention.apply(plan, self._now)
        return MaintenanceStep(
            table=spec.name,
            step="retain",
            log=str(log_id),
            bytes_before=plan.held_bytes,
            bytes_after=plan.held_bytes - plan.out_bytes,
            records=records,
        )

    def _join(self, spec: TableSpec) -> MaintenanceStep:
        masters = [one.open_any() for one in subjects(self._config) if log_table(one.log_id) is spec]
        before = self._now - timedelta(hours=self._settings.join_hours)
        joining = LedgerJoin(self._spark, self._warehouse, masters, before, pace=self._pace)
        done = joining.plan() if self._dry_run else joining.run()
        for one in done.doubtful:
            _log.warning("%s: %s", one.log_id, describe(one.found))
            incident = incident_of(one.found, one.position)
            IncidentsTable(self._spark, self._warehouse, one.log_id).record(one.epoch, [incident] if incident else [])
        return MaintenanceStep(
            table=LEDGER.name,
            step="join",
            files_before=done.rows,
            files_after=done.into,
            bytes_before=done.bytes,
            bytes_after=done.bytes,
            records=len(done.doubtful),
        )

    def _keep(self, log_id: LogId) -> Keep:
        days, gigabytes = self._settings.keep_days, self._settings.keep_gb
        if log_id in self._kept_whole and (days is not None or gigabytes is not None):
            _log.info("%s: nothing is deleted, because %s needs all of it", log_id, KEY_VALUES.name)
            return Keep()
        return Keep(
            age=None if days is None else timedelta(days=days),
            size_bytes=None if gigabytes is None else round(gigabytes * _GB),
        )

    def _checkpoint(self, spec: TableSpec) -> MaintenanceStep:
        table = KernelTable(self._spark, self._path(spec))
        newest = table.snapshot()
        if newest is not None and not self._dry_run:
            table.checkpoint(newest)
        return MaintenanceStep(table=spec.name, step="checkpoint")

    def _vacuum(self, spec: TableSpec) -> MaintenanceStep:
        if spec is QUARANTINE and not self._dry_run:
            commit_owed(self._spark, self._warehouse)
        done = vacuum(self._spark, self._path(spec), self._settings.vacuum_hours, dry_run=self._dry_run)
        return MaintenanceStep(
            table=spec.name,
            step="vacuum",
            files_before=done.files,
            files_after=done.files - done.removed,
            bytes_before=done.bytes,
            bytes_after=done.bytes - done.removed_bytes,
        )

    def _log_entries(self, spec: TableSpec) -> MaintenanceStep:
        folder = LogFolder(self._path(spec), self._spark)
        entries = folder.entries()
        old = expired(entries, self._now - timedelta(hours=self._settings.log_hours), folder.is_whole)
        if not self._dry_run:
            folder.remove(old)
        size_bytes = sum(entry.size_bytes for entry in entries)
        return MaintenanceStep(
            table=spec.name,
            step="log",
            files_before=len(entries),
            files_after=len(entries) - len(old),
            bytes_before=size_bytes,
            bytes_after=size_bytes - sum(entry.size_bytes for entry in old),
        )

    def _is_table(self, spec: TableSpec) -> bool:
        return KernelTable(self._spark, self._path(spec)).snapshot() is not None

    def _path(self, spec: TableSpec) -> str:
        return spec.path(self._warehouse)


def told(steps: Iterator[MaintenanceStep], telling: Telling) -> Iterator[MaintenanceStep]:
    """`steps`, and `telling` of each, and of how they ended. Raises what they raise."""
    try:
        for one in steps:
            telling.did(one.done)
            yield one
    except Exception as error:
        telling.ended(str(error))
        raise
    telling.ended()


def step_lines(steps: Sequence[MaintenanceStep], *, dry_run: bool) -> Iterator[str]:
    """Say what changed, or with `dry_run` would change: a line a table, and a summary."""
    sums: dict[tuple[str, str], MaintenanceStep] = {}
    for one in steps:
        before = sums.get((one.table, one.step))
        sums[one.table, one.step] = one if before is None else before.and_also(one)
    changes: dict[str, list[str]] = {}
    for one in sums.values():
        words = _CHANGES[one.step](one)
        changes.setdefault(one.table, []).extend([words] if words else [])
    changed = {table: words for table, words in changes.items() if words}
    yield from (f"{table}: {'; '.join(words)}" for table, words in changed.items())
    would = " would change" if dry_run else " changed"
    took = duration(sum(one.seconds for one in steps))
    yield f"{len(changed):,} of {count(len(changes), 'table')}{would}; {count(len(steps), 'step')} in {took}"


def _merged(one: MaintenanceStep) -> str:
    if not one.files_before:
        return ""
    into = "" if one.bytes_after is None else f", {size(one.bytes_after)}"
    return f"{count(one.files_before, 'file')}, {size(one.bytes_before)}, merged into {number(one.files_after)}{into}"


def _retained(one: MaintenanceStep) -> str:
    out = one.bytes_before - (one.bytes_after or 0)
    records = f", {count(one.records, 'record')}," if one.records else ""
    return f"{size(out)} of {size(one.bytes_before)}{records} of the log deleted" if out else ""


def _joined(one: MaintenanceStep) -> str:
    rows = f"{count(one.files_before, 'row')} joined into {number(one.files_after)}, {size(one.bytes_before)} compared"
    damaged = f"{count(one.records, 'range')} damaged, see logtwin incidents list" if one.records else ""
    return "; ".join(words for words in (rows if one.files_before else "", damaged) if words)


def _deleted(one: MaintenanceStep, what: str, several: str) -> str:
    """Say how many files were deleted, of how many."""
    gone, size_bytes = one.files_before - one.files_after, one.bytes_before - (one.bytes_after or 0)
    return f"{number(gone)} of {count(one.files_before, what, several)}, {size(size_bytes)}, deleted" if gone else ""


_CHANGES: Mapping[str, Callable[[MaintenanceStep], str]] = {
    "merge": _merged,
    "retain": _retained,
    "checkpoint": lambda one: "",
    "join": _joined,
    "vacuum": partial(_deleted, what="file", several="files"),
    "log": partial(_deleted, what="entry of the Delta log", several="entries of the Delta log"),
}
"""The words for the change of each kind of step; empty if it changed nothing, as a checkpoint does."""
