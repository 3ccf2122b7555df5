"""Find the version of a table that had a log up to an offset, and the offset of a time of the master. Driver only.

The version is the first one whose position reaches the offset, in the log's present history. A later version has the
same records below the offset, except for holes filled since, and for records that retention or repair removed. So if
the Delta log does not go back that far, or VACUUM has removed files of that version, a later one is used, and
`AsOf.is_first` says so.

A time of the master becomes an offset by the records themselves: everything below the first one that was stored later.
Without such a record it is not known whether more was stored by then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import pyarrow.fs as pafs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from sinks.delta.kernel import KernelTable, Overlap, Snapshot
from sinks.state.position import LogTable
from sinks.storage.place import open_folder
from sinks.tables import LEDGER, LOG_ID, log_table
from sinks.values.ledger_row import BACKFILL
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
