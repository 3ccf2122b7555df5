"""The history of one kind of metadata of one log: a Delta table of versions.

A fetch that changes something is one commit: it exchanges the file of current versions, and adds a file of the versions
that ended. History is never changed. The commit is built on the very snapshot whose files were compared. If anybody
commits in between (another log, OPTIMIZE), it fails, and the fetch is compared again. So nothing is kept between two
fetches, and a restart needs no special treatment. Everything runs in the driver, without a Spark job, so batches do not
wait for it.

If a master numbers its states, the number is kept with the commit, even for a state without items: a fetch with a lower
number is outdated.

A kill leaves files that no commit names; VACUUM removes them. A refused commit leaves them too, because it may have
been made.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from sinks.delta.actions import Partition
from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile
from sinks.delta.files import FileWriter, open_parquet
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.delta.retries import retrying
from sinks.history.metadata_versions import Row, VersionChange, compare
from sinks.storage.errors import failed_by
from sinks.tables import IS_CURRENT, LOG_ID, metadata_table
from sinks.warehouse import absolute, ensure_table
from sources.errors import MasterError, ReplicaError
from sources.metadata import MetadataKind
from sources.offsets import LogId

_TICK = timedelta(microseconds=1)
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_TURN = threading.Lock()
"""Serializes the logs of a job, which write the same tables: if all wrote at once, most commits would be refused."""


class MetadataTable:
    """The metadata of one kind of one log. Driver only; one thread at a time. The first fetch creates the table."""

    def __init__(self, spark: SparkSession, warehouse: str, log_id: LogId, kind: MetadataKind) -> None:
        self._kind = kind
        self._log_id = log_id
        self._spec = metadata_table(kind)
        self._schema = self._spec.schema.remove_metadata()
        self._table = KernelTable(spark, self._spec.path(absolute(warehouse)))
        self._is_ensured = False

    def record(self, items: pa.Table, fetched_at: datetime, version: int = 0) -> int:
        """Record that at `fetched_at` the master had exactly `items`. Returns how many versions began or ended.

        If that is 0, nothing is committed but the master's `version` if it grew. If the clock went back, the time of
        the last change plus a microsecond is used for `fetched_at`.
        Raises MasterError if `version` is below the recorded one: the items are older, and are not taken.
        Raises ReplicaError, ConfigurationError (a table that is not ours).
        """
        if not self._is_ensured:
            ensure_table(self._table, self._spec)
            self._is_ensured = True
        rows = items.to_pylist()
        try:
            with _TURN:
                return retrying(self._failure)(self._record, rows, fetched_at, version)
        except (OSError, pa.ArrowException) as error:
            raise self._failure(error) from error

    def _record(self, items: Sequence[Row], fetched_at: datetime, version: int) -> int:
        snapshot = self._table.snapshot()
        if snapshot is None:
            raise self._failure("the table is gone")
        changed_at, recorded = self._last(snapshot)
        if version < recorded:
            raise self._outdated(version, recorded)
        at = max(fetched_at, changed_at + _TICK)
        files = self._table.files(snapshot, self._partition(is_current=True))
        change = compare(self._kind, self._read(files), items, at)
        if change is not None:
            self._commit(snapshot, files, change, at, version)
            return len(change.closed) + change.opened
        if version > recorded:
            self._table.commit(snapshot, domains=self._domains(changed_at, version))
            self._table.run_hooks()
        return 0

    def _commit(
        self, snapshot: Snapshot, files: Sequence[StoredFile], change: VersionChange, at: datetime, version: int
    ) -> None:
        parts = ((self._partition(is_current=True), change.current), (self._partition(is_current=False), change.closed))
        added = [(partition, self._write(rows, partition, at)) for partition, rows in parts if rows]
        self._table.replace(snapshot, files, added, domains=self._domains(at, version))
        self._table.run_hooks()

    @property
    def _domain(self) -> str:
        return f"logtwin.{self._log_id}"

    def _domains(self, changed_at: datetime, version: int) -> dict[str, str]:
        return {self._domain: json.dumps({"changed_at": changed_at.isoformat(), "version": version})}

    def _last(self, snapshot: Snapshot) -> tuple[datetime, int]:
        """What the last commit of the log says: when the metadata changed, and the master's number of that state."""
        text = snapshot.domain(self._domain)
        if text is None:
            return _EARLIEST, 0
        facts = json.loads(text)
        return datetime.fromisoformat(facts["changed_at"]), facts.get("version", 0)

    def _partition(self, *, is_current: bool) -> Partition:
        return {LOG_ID.name: str(self._log_id), IS_CURRENT.name: is_current}

    def _read(self, files: Sequence[StoredFile]) -> list[dict[str, Any]]:
        """The versions in `files`, without the partition columns: files that Spark wrote do not have them."""
        names = [name for name in self._schema.names if name not in self._spec.partitioning]
        schema = pa.schema([self._schema.field(name) for name in names])
        rows: list[dict[str, Any]] = []
        for file in files:
            with open_parquet(self._table.path, file.path) as opened:
                found = opened.read(names)
                rows += found.select(names).cast(schema).to_pylist()
        return rows

    def _write(self, rows: Sequence[Row], partition: Partition, at: datetime) -> DataFile:
        """Write one file. It has the partition columns, too: not every reader takes them from the Delta log."""
        name = f"part-{at.astimezone(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4()}.zstd.parquet"
        with FileWriter(self._spec, self._table.path, name) as writer:
            writer.write(pa.RecordBatch.from_pylist([{**row, **partition} for row in rows], schema=self._schema))
            return writer.finish()

    def _outdated(self, version: int, recorded: int) -> MasterError:
        return MasterError(
            f"the master's {self._kind.name} are older than the recorded ones, and were ignored",
            log=self._log_id,
            expected=f"version {recorded} or a later one",
            found=f"version {version}",
            hint="Its clock or its file went back; the next change with a later version is taken again.",
        )

    def _failure(self, found: object) -> ReplicaError:
        return failed_by(found)(
            f"the {self._kind.name} that were fetched cannot be written to {self._table.path}",
            log=self._log_id,
            found=found,
            hint="Nothing of them was committed; the next fetch brings them again.",
        )
