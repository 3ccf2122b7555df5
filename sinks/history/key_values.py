"""The map that one log makes, in the table dister_kv, kept in step with the log's position. Driver only, no Spark job.

A commit replaces the files of the buckets that change. It writes the map's position in the log to the domain metadata
``logtwin.<log id>`` and, if the offset moves, to the transaction version:

    epoch, offset   every record of that history below `offset` is in the map
    fills           so many backfills of the log (`sinks.state.holes.Holes.fills`) are in it

So there is never a map without its position, nor half of either. A kill leaves files that no commit names; VACUUM
removes them. A refused commit leaves them too, because it may have been made.

`KeyedStateFollower` brings the map from its own position to the log's, at each start and after each commit of the log,
by the records in between, which it reads from the table log. It depends on the two tables alone. So it ends the same if
it is killed anywhere, run twice, or run by two processes:

    the log moved on            apply the records in between
    a backfill brought records  apply all records to the existing map: older ones change nothing
    another epoch, or no map    apply all records to an empty map, in one commit: nothing that a repair took out is left

The records are read batch by batch. The newest change of each key is kept in memory: at most the whole map, as in
dister itself.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sinks.delta.actions import Partition
from sinks.delta.commits import retrying
from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile, Version
from sinks.delta.files import FileWriter, batches_of, open_parquet
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.history.key_map import ENTRIES_SCHEMA, bucket_of, by_bucket, merged
from sinks.proof.stored import parts, read
from sinks.proof.whole_ledger import read_ledger
from sinks.state.holes import joined
from sinks.state.log_table import Held, LogTable
from sinks.storage.errors import failed_by
from sinks.tables import BUCKET, EPOCH, KEY_VALUES, LOG_ID, log_table
from sinks.warehouse import absolute, ensure_table
from sources.errors import LogError, ReplicaError
from sources.master import MasterLog
from sources.offsets import LogId, Offset, OffsetRange, Position
from sources.records import Changes, KeyedState

_SCHEMA = KEY_VALUES.schema.remove_metadata()
_ROWS_AT_ONCE = 16_384
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MapPosition:
    """The position of a map in its log; see the module's docstring."""

    epoch: int
    offset: Offset
    fills: int = 0


@dataclass(frozen=True, slots=True)
class MapView:
    """The map at one version of the table. `position` is None before the first commit of the log."""

    snapshot: Snapshot
    position: MapPosition | None


def position_at(version: Version, log_id: LogId) -> MapPosition | None:
    """The position of a log's map at that version of the table; None if it has none. Raises ReplicaError."""
    domain = f"logtwin.{log_id}"
    text = version.domain(domain)
    try:
        return None if text is None else MapPosition(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise _unreadable(f"the domain metadata {domain} of the table {KEY_VALUES.name}", log_id, text) from error


class StoredMap:
    """The map of a log, in `files` of the table in `folder`. Raises ReplicaError naming a file that cannot be read."""

    def __init__(self, folder: str, log_id: LogId, files: Sequence[StoredFile]) -> None:
        self._folder = folder
        self._log_id = log_id
        self._files = files

    def value(self, key: str) -> str | None:
        """The value of `key`; None if the map does not have it."""
        bucket = [file for file in self._files if file.partition()[BUCKET.name] == bucket_of(key)]
        for entries in self._batches(("key", "value"), bucket):
            found = entries.filter(pc.equal(entries["key"], key))
            if found.num_rows:
                return cast(str | None, found["value"][0].as_py())
        return None

    def count(self) -> int:
        return sum(int(one.num_rows - one["deleted"].true_count) for one in self._batches(("deleted",)))

    def items(self) -> dict[str, str]:
        """The whole map, by key."""
        found: dict[str, str] = {}
        for entries in self._batches(("key", "value", "deleted")):
            live = entries.filter(pc.invert(entries["deleted"]))
            found.update(zip(live["key"].to_pylist(), live["value"].to_pylist(), strict=True))
        return dict(sorted(found.items()))

    def entries(self) -> pa.Table:
        """All entries, including those of deleted keys, as ENTRIES_SCHEMA."""
        return pa.Table.from_batches(self._batches(ENTRIES_SCHEMA.names), ENTRIES_SCHEMA)

    def _batches(self, columns: Sequence[str], files: Sequence[StoredFile] | None = None) -> Iterator[pa.RecordBatch]:
        """Some columns of the entries, but never partition columns, which files that Spark wrote lack."""
        schema = pa.schema([ENTRIES_SCHEMA.field(name) for name in columns])
        for file in self._files if files is None else files:
            try:
                with open_parquet(self._folder, file.path) as opened:
                    for batch in batches_of(opened, _ROWS_AT_ONCE, columns):
                        yield batch.select(columns).cast(schema)
            except (OSError, ValueError, pa.ArrowException) as error:
                raise _unreadable(f"the data file {self._folder}/{file.path}", self._log_id, error) from error


def _unreadable(what: str, log_id: LogId, found: object) -> ReplicaError:
    return failed_by(found)(
        f"{what} cannot be read",
        log=log_id,
        expected="what this version writes",
        found=found,
        hint=f"Move the table {KEY_VALUES.name} away: the next start rebuilds it from the table log.",
    )


class KeyValues:
    """The map of one log in the table. Driver only; one thread at a time. Raises ReplicaError."""

    def __init__(self, spark: SparkSession, warehouse: str, log_id: LogId) -> None:
        self._table = KernelTable(spark, KEY_VALUES.path(absolute(warehouse)))
        self._log_id = log_id
        self._domain = f"logtwin.{log_id}"

    def ensure(self) -> None:
        """Create the table unless it is there. Raises ConfigurationError if it is not ours."""
        ensure_table(self._table, KEY_VALUES)

    def look(self) -> MapView | None:
        """The newest version; None if there is no table."""
        snapshot = self._table.snapshot()
        return None if snapshot is None else MapView(snapshot, position_at(snapshot, self._log_id))

    def exchange(self, view: MapView, changes: Changes, to: MapPosition, *, anew: bool) -> None:
        """Apply `changes` to the map of `view`, or to an empty map if `anew`, which brings it to `to`, in one commit.

        Raises KernelConflict if the log's map has changed since `view`.
        """
        files = self._by_bucket(view)
        removed = [file for bucket in files.values() for file in bucket] if anew else []
        added: list[tuple[Partition, DataFile]] = []
        for bucket, part in by_bucket(changes).items():
            old = [] if anew else files.get(bucket, [])
            entries = merged(StoredMap(self._table.path, self._log_id, old).entries(), part)
            if entries is not None:
                removed += old
                added.append(self._write(bucket, entries, to.epoch))
        self._table.replace(
            view.snapshot,
            removed,
            added,
            domains={self._domain: json.dumps(asdict(to))},
            transaction=self._transaction(view, to),
            over_appends=True,  # nobody changes the map of this log without its domain
        )
        self._table.run_hooks()

    def _transaction(self, view: MapView, to: MapPosition) -> tuple[str, int] | None:
        """The transaction of the commit; None if only a backfill changes the map, because its version has to grow."""
        was = view.position
        if was is not None and (was.epoch, was.offset) == (to.epoch, to.offset):
            return None
        return Position(self._log_id, to.epoch, to.offset).app_id, to.offset

    def _by_bucket(self, view: MapView) -> dict[str, list[StoredFile]]:
        found: dict[str, list[StoredFile]] = {}
        for file in self._table.files(view.snapshot, {LOG_ID.name: str(self._log_id)}):
            found.setdefault(file.partition()[BUCKET.name], []).append(file)
        return found

    def _write(self, bucket: str, entries: pa.Table, epoch: int) -> tuple[Partition, DataFile]:
        """Write one file. It has the partition columns, too: not every reader takes them from the Delta log."""
        partition = {LOG_ID.name: str(self._log_id), BUCKET.name: bucket}
        name = f"part-{bucket}-{uuid.uuid4()}.zstd.parquet"
        with FileWriter(KEY_VALUES, self._table.path, name) as writer:
            for batch in entries.combine_chunks().to_batches(max_chunksize=_ROWS_AT_ONCE):
                writer.write(_with_constants(batch, {**partition, EPOCH.name: epoch}))
            return partition, writer.finish()


def _with_constants(entries: pa.RecordBatch, values: Mapping[str, str | int]) -> pa.RecordBatch:
    """The entries as rows of the table; `values` are the same in all of them."""
    columns = [
        pa.repeat(pa.scalar(values[field.name], field.type), entries.num_rows)
        if field.name in values
        else entries[field.name]
        for field in _SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


class KeyedStateFollower:
    """Keeps the map of one log in step. Does nothing if the log makes no map. Driver only; one thread at a time."""

    def __init__(self, spark: SparkSession, warehouse: str, master: MasterLog) -> None:
        self._spark = spark
        self._warehouse = absolute(warehouse)
        self._log_id = master.log_id
        self._keyed = master.traits.keyed_state
        self._is_ensured = False

    # These are made on first use: most logs make no map, and a job may have many logs.

    @cached_property
    def _files(self) -> KernelTable:
        return KernelTable(self._spark, log_table(self._log_id).path(self._warehouse))

    @cached_property
    def _log(self) -> LogTable:
        return LogTable(self._spark, self._files.path, self._log_id)

    @cached_property
    def _map(self) -> KeyValues:
        return KeyValues(self._spark, self._warehouse, self._log_id)

    def follow(self) -> bool:
        """Bring the map to the log's position. Returns whether it was elsewhere. Creates the table if need be.

        Raises ReplicaError, ConfigurationError (a table that is not ours). The log is not affected by a failure: the
        next call goes on.
        """
        keyed = self._keyed
        if keyed is None:
            return False
        try:
            if not self._is_ensured:
                self._map.ensure()
                self._is_ensured = True
            return retrying(self._failure)(self._follow, keyed)
        except (OSError, pa.ArrowException, LogError) as error:  # LogError: a row that the master never sent
            raise self._failure(error) from error

    def _follow(self, keyed: KeyedState) -> bool:
        view = self._map.look()
        if view is None:
            raise self._failure("the table is gone")
        held = self._log.read()  # after the map, so that it cannot be older than the map
        was, to = view.position, _position(held)
        if to is None or to == was:
            return False
        self._check_order(was, to)
        base = was if was is not None and was.epoch == to.epoch else None
        known = Offset(0) if base is None else base.offset
        self._check_whole(held, OffsetRange(known, to.offset))
        start = known if base is None or base.fills == to.fills else Offset(0)
        changes = self._changes(held, OffsetRange(start, to.offset), keyed)
        self._map.exchange(view, changes, to, anew=base is None)
        if base is None:
            _log.info("%s: %s was rebuilt from the log up to %s", self._log_id, KEY_VALUES.name, to.offset)
        return True

    def _changes(self, held: Held, wanted: OffsetRange, keyed: KeyedState) -> Changes:
        """The changes that the records that start in `wanted` make to the map."""
        files = parts(self._files, held.snapshot, self._log_id, wanted)
        columns = tuple(dict.fromkeys(("offset", *keyed.made_from)))
        found: Changes = {}
        for records in read(self._files.path, files, self._log_id, wanted, columns):
            found |= keyed.changes(records)
        return found

    def _check_order(self, was: MapPosition | None, to: MapPosition) -> None:
        if was is not None and (was.epoch, was.offset) > (to.epoch, to.offset):
            raise ReplicaError(
                f"the table {KEY_VALUES.name} is ahead of the table log",
                log=self._log_id,
                offset=to.offset,
                expected=f"at most epoch {to.epoch}, offset {to.offset}",
                found=f"epoch {was.epoch}, offset {was.offset}",
                hint=f"The table log was restored from an older copy: move {KEY_VALUES.name} away, and the next start "
                "makes it anew.",
            )

    def _check_whole(self, held: Held, needed: OffsetRange) -> None:
        """Raises ReplicaError if the replica's own retention has deleted records that are needed. Records that were
        lost before were never in the map."""
        first = Offset(0) if held.state is None or held.state.first is None else held.state.first
        if held.holes.front <= max(first, needed.start):
            return
        ledger = read_ledger(self._warehouse, self._log_id, ())
        ranges = zip(ledger["start"].to_pylist(), ledger["end"].to_pylist(), strict=True)
        gone = [part for start, end in ranges for part in held.holes.within(OffsetRange(start, end))]
        if gone:
            raise ReplicaError(
                "the map lacks what the replica's retention has deleted from the log",
                log=self._log_id,
                offset=gone[0].start,
                expected=f"every record in {needed}",
                found=f"none in {', '.join(map(str, joined(gone)))}",
                hint="logtwin backfill --from 0 brings them from the master; do not use keep_gb for this log.",
            )

    def _failure(self, found: object) -> ReplicaError:
        return failed_by(found)(
            f"the map of the log cannot be brought to {KEY_VALUES.path(self._warehouse)}",
            log=self._log_id,
            found=found,
            hint="The log is not affected: the next start brings the map up to date.",
        )


def _position(held: Held) -> MapPosition | None:
    """The map position that the log is at; None before its first record."""
    if held.state is None or held.state.offset is None:
        return None
    return MapPosition(held.state.epoch, held.state.offset, held.holes.fills)
