"""Show one log as of an offset, or as of a time of the master: `register_as_of`. Driver only.

`PastLog` finds the version of the table: the first one whose position reaches the offset, in the log's present history.
A later version has the same records below the offset, except for holes filled since, and for records that retention or
repair removed. So if the Delta log does not go back that far, or VACUUM has removed files of that version, a later one
is used, and `AsOf.is_first` says so.

A time of the master becomes an offset by the records themselves: everything below the first one that was stored later.
Without such a record it is not known whether more was stored by then.

The table of records is read at that version. In other tables later rows are left out by the tables' own columns: up to
the commit of that version, or, for metadata, up to the time when the replica came to the offset. What was current then
is shown as current.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow.fs as pafs
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from sinks.delta.kernel import KernelTable, Overlap, Snapshot
from sinks.delta.spark_jobs import first_line
from sinks.state.log_table import LogTable
from sinks.storage.place import open_folder
from sinks.tables import (
    EPOCHS,
    INCIDENTS,
    IS_CURRENT,
    KAFKA_LOG,
    KAFKA_REMOVED,
    KEY_VALUES,
    LEDGER,
    LOG,
    LOG_ID,
    QUARANTINE,
    REMOVED,
    SCHEMA_CHANGES,
    UNFIT,
    VALID_FROM,
    VALID_TO,
    TableSpec,
    log_table,
)
from sinks.values.incident import State
from sinks.values.ledger_row import BACKFILL
from sinks.views.registration import frames, newest_versions, register_views
from sinks.warehouse import absolute, spark_schema
from sources.errors import ReplicaError
from sources.offsets import LogId, Offset, OffsetRange, Position
from sources.readable import instant, iso


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """One log below `offset`, in `version` of its table, which was committed at `committed_at`.

    `is_first` says whether that is the first version that had it; otherwise it is the oldest that can still be read.
    `reached_at` is when the replica came to the offset, even if no version of that time is left.
    """

    log_id: LogId
    offset: Offset
    version: int
    committed_at: datetime
    reached_at: datetime
    is_first: bool


def first_version(versions: range, wanted: Position, position_at: Callable[[int], Position | None]) -> int:
    """The first of a table's `versions` that is in the epoch of `wanted`, and at least as far. The last one has to be.

    `position_at` gives the position of a version, None before the first data. Epochs only grow, and so do offsets
    within an epoch. Pure.
    """

    def has_it(version: int) -> bool:
        found = position_at(version)
        return found is not None and found.epoch == wanted.epoch and found.offset >= wanted.offset

    return versions[bisect_left(versions[:-1], True, key=has_it)]


class PastLog:
    """One log in the tables of a warehouse, as they are now. Raises ReplicaError if it has no data."""

    def __init__(self, spark: SparkSession, place: str, log_id: LogId) -> None:
        self._spark = spark
        self._place = place
        self._log_id = log_id
        self._spec = log_table(log_id)
        self._table = LogTable(spark, self._spec.path(place), log_id)
        self._files = KernelTable(spark, self._spec.path(place))
        self._held = self._table.read()
        position = None if self._held.state is None else self._table.position_of(self._held.state)
        if position is None:
            raise ReplicaError(
                f"the replica in {place} has nothing of this log",
                log=log_id,
                expected=", ".join(_logs_in(self._held.snapshot)) or "any log",
                found="none of that name",
                hint="A log id is its kind and name, for example rocketmq/broker-a.",
            )
        self._position = position

    def offset_at(self, time: datetime) -> Offset:
        """The offset below which lie exactly the records that the master had stored at `time`. Raises ReplicaError."""
        stored = sql.col(self._spec.stored_at)
        records = self._records()
        after = records.where(stored > sql.lit(time)).agg(sql.min("offset")).collect()[0][0]
        if after is None:
            newest_us = records.agg(sql.unix_micros(sql.max(stored))).collect()[0][0]
            newest = "no record with a time" if newest_us is None else f"the newest one, of {iso(newest_us)}"
            raise self._unknown(time, f"a record that was stored after {time}", newest)
        holes = self._held.holes.within(OffsetRange(Offset(0), after))
        if holes and not self._has_message(OffsetRange(holes[-1].end, after)):
            raise self._unknown(time, f"the record before {after}, where {time} lies", f"{holes[-1]} is missing")
        return Offset(after)

    def as_of(self, offset: Offset) -> AsOf:
        """The log as of `offset`. Raises ReplicaError if the replica has not come that far."""
        if offset > self._position.offset:
            raise ReplicaError(
                "the replica has not come that far",
                log=self._log_id,
                offset=offset,
                expected=f"an offset up to its position {self._position.offset}",
                found=offset,
                hint="logtwin status says how far it is.",
            )
        newest = self._held.snapshot
        versions = range(self._files.oldest_version(newest), newest.version + 1)
        first = first_version(versions, Position(self._log_id, self._position.epoch, offset), self._position_at)
        served = self._readable(first, offset)
        committed_at = served.committed_at()
        return AsOf(
            log_id=self._log_id,
            offset=offset,
            version=served.version,
            committed_at=committed_at,
            # a joined row has the time of its last commit
            reached_at=min(self._reached_at(offset) or committed_at, committed_at),
            # only if an earlier version is left; version 0 has no position
            is_first=served.version == first and first > versions.start,
        )

    def _position_at(self, version: int) -> Position | None:
        state = self._table.read_at(version).state
        return None if state is None else self._table.position_of(state)

    def _readable(self, version: int, offset: Offset) -> Snapshot:
        """The version, or the newest one if VACUUM has removed files that the version needs below `offset`."""
        now, then = self._held.snapshot, self._files.snapshot_at(version)
        equal, below = {LOG_ID.name: str(self._log_id)}, Overlap(OffsetRange(Offset(0), offset), "offset")
        paths_now, paths_then = ({file.path for file in self._files.files(on, equal, below)} for on in (now, then))
        return then if _are_there(self._files.path, paths_then - paths_now) else now

    def _records(self) -> DataFrame:
        frame = (
            self._spark.read.format("delta").option("versionAsOf", self._held.snapshot.version).load(self._files.path)
        )
        return frame.where(sql.col(LOG_ID.name) == str(self._log_id))

    def _has_message(self, wanted: OffsetRange) -> bool:
        starts = sql.col("offset")
        inside = sql.col(self._spec.stored_at).isNotNull() & (starts >= wanted.start) & (starts < wanted.end)
        return not self._records().where(inside).isEmpty()

    def _reached_at(self, offset: Offset) -> datetime | None:
        """When a commit other than a backfill first reached `offset`, by the ledger."""
        ledger = self._spark.read.format("delta").load(LEDGER.path(self._place))
        is_ours = (sql.col(LOG_ID.name) == str(self._log_id)) & (sql.col("origin") != BACKFILL)
        behind = ledger.where(is_ours & (sql.col("end") >= offset))
        committed_us = behind.agg(sql.unix_micros(sql.min("committed_at"))).collect()[0][0]
        return None if committed_us is None else instant(committed_us)

    def _unknown(self, time: datetime, expected: str, found: str) -> ReplicaError:
        return ReplicaError(
            f"it is not known whether the replica is complete through {time}",
            log=self._log_id,
            offset=self._position.offset,
            expected=expected,
            found=found,
            hint=f"Ask for an offset instead: its position is {self._position.offset}; see logtwin coverage.",
        )


def _are_there(folder: str, names: set[str]) -> bool:
    filesystem, inner = open_folder(folder)
    found = filesystem.get_file_info([f"{inner.rstrip('/')}/{name}" for name in names])
    return all(one.type is pafs.FileType.File for one in found)


def _logs_in(snapshot: Snapshot) -> list[str]:
    found = []
    for domain in snapshot.domains():
        with suppress(ValueError):  # raised for a log's holes, and for Delta's own domains
            found.append(str(LogId.parse(domain.removeprefix("logtwin."))))
    return sorted(found)


_Rule = Callable[[DataFrame, AsOf], DataFrame]


def as_it_was(spec: TableSpec, frame: DataFrame, as_of: AsOf) -> DataFrame:
    """The rows of `frame`, which is table `spec`, that were there as of `as_of`; with its columns and comments."""
    ours = frame.where(sql.col(LOG_ID.name) == str(as_of.log_id))
    return _RULES.get(spec.name, _metadata)(ours, as_of).to(spark_schema(spec.schema))


def _log(rows: DataFrame, as_of: AsOf) -> DataFrame:
    # the first condition lets Delta skip files
    start = sql.col("offset")
    return rows.where((start < as_of.offset) & (start + sql.col("size") <= as_of.offset))


def _ledger(rows: DataFrame, as_of: AsOf) -> DataFrame:
    """Rows of the stream are selected by offset; a backfill or a retention may have come later than that version."""
    is_later = (sql.col("origin") == BACKFILL) & (sql.col("committed_at") > as_of.committed_at)
    deleted_at = sql.col("deleted_at")
    then = rows.where((sql.col("start") < as_of.offset) & ~is_later)
    return then.withColumn("deleted_at", sql.when(deleted_at <= as_of.committed_at, deleted_at))


def _incidents(rows: DataFrame, as_of: AsOf) -> DataFrame:
    had_ended = sql.coalesce(sql.col("ended_at") <= as_of.committed_at, sql.lit(False))
    then = rows.where(sql.col("detected_at") <= as_of.committed_at)
    return then.withColumns(
        {
            "state": sql.when(had_ended, sql.col("state")).otherwise(State.OPEN.value),
            "ended_at": sql.when(had_ended, sql.col("ended_at")),
            "note": sql.when(had_ended, sql.col("note")),
        }
    )


def _below(rows: DataFrame, as_of: AsOf) -> DataFrame:
    return rows.where(sql.col("offset") < as_of.offset)


def _until(column: str) -> _Rule:
    return lambda rows, as_of: rows.where(sql.col(column) <= as_of.committed_at)


def _key_values(rows: DataFrame, as_of: AsOf) -> DataFrame:
    """The table has only the newest value of a key. A query of it raises an error instead of showing newer values."""
    problem = f"dister_kv has no past: what {as_of.log_id} said of a key at {as_of.offset} is in the table log"
    return rows.where(sql.raise_error(sql.lit(problem)).isNull())


def _metadata(rows: DataFrame, as_of: AsOf) -> DataFrame:
    begin, end = sql.col(VALID_FROM.name), sql.col(VALID_TO.name)
    then = rows.where((begin <= as_of.reached_at) & (end.isNull() | (end > as_of.reached_at)))
    return then.withColumns({VALID_TO.name: sql.lit(None), IS_CURRENT.name: sql.lit(True)})


_RULES: Final[dict[str, _Rule]] = {
    LOG.name: _log,
    KAFKA_LOG.name: _below,
    LEDGER.name: _ledger,
    INCIDENTS.name: _incidents,
    QUARANTINE.name: _below,
    REMOVED.name: _until("removed_at"),
    KAFKA_REMOVED.name: _until("removed_at"),
    EPOCHS.name: _until("since"),
    KEY_VALUES.name: _key_values,
    SCHEMA_CHANGES.name: _until("changed_at"),
    UNFIT.name: _below,
}
"""The rule for each table; all other tables are metadata."""


def register_as_of(spark: SparkSession, warehouse: str, log_id: LogId, at: Offset | datetime) -> AsOf:
    """Register tables and views in a session as `register` does, for one log as of an offset or a time of the master.

    Table log has the records that end at or below the offset; the other tables say what they said then. Returns what
    the session shows from now on. Raises ReplicaError if there is no such log, if the replica has not come that far, or
    if it is not known whether it has.
    """
    place = absolute(warehouse)
    existing = newest_versions(spark, place)
    try:
        log = PastLog(spark, place, log_id)
        as_of = log.as_of(log.offset_at(at) if isinstance(at, datetime) else at)
        for spec, frame in frames(spark, place, existing, {log_table(as_of.log_id).name: as_of.version}):
            as_it_was(spec, frame, as_of).createOrReplaceTempView(spec.name)
        register_views(spark)
    except (PySparkException, Py4JError, OSError) as error:
        raise ReplicaError(
            "the replica cannot be read as it was",
            log=log_id,
            found=first_line(error),
            hint="Check that the tables' storage can be reached; maintenance may have run meanwhile: ask again.",
        ) from error
    return as_of
