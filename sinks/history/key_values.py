"""Read and update the map that one log makes, in the table dister_kv.

A commit replaces the files of the buckets that change. It writes the map's position in the log to the domain metadata
``logtwin.<log id>`` and, if the offset moves, to the transaction version:

    epoch, offset   every record of that history below `offset` is in the map
    fills           so many backfills of the log (`sinks.state.holes.Holes.fills`) are in it

So there is never a map without its position, nor half of either. A kill leaves files that no commit names; VACUUM
removes them. A refused commit leaves them too, because it may have been made. Everything runs in the driver, without a
Spark job.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sinks.delta.actions import Partition
from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile, Version
from sinks.delta.files import FileWriter, batches_of, open_parquet
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.history.key_map import ENTRIES_SCHEMA, bucket_of, by_bucket, merged
from sinks.storage.errors import failed_by
from sinks.tables import BUCKET, EPOCH, KEY_VALUES, LOG_ID
from sinks.warehouse import absolute, ensure_table
from sources.errors import ReplicaError
from sources.offsets import LogId, Offset, Position
from sources.records import Changes

_SCHEMA = KEY_VALUES.schema.remove_metadata()
_ROWS_AT_ONCE = 16_384


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
