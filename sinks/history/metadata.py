"""The history of one kind of metadata of one log: a Delta table of versions.

A fetch that changes something is one commit: it exchanges the file of current versions, and adds a file of the versions
that ended. History is never changed. The commit is built on the very snapshot whose files were compared. If anybody
commits in between (OPTIMIZE), it fails, and the fetch is compared again. So a restart needs no special treatment. The
logs of a job write the same tables: what they have fetched while another commit was made is one commit. Everything runs
in the driver, without a Spark job, so batches do not wait for it.

If a master numbers its states, the number is kept with the commit, even for a state without items: a fetch with a lower
number is outdated.

A kill leaves files that no commit names; VACUUM removes them. A refused commit leaves them too, because it may have
been made.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from sinks.delta.actions import Partition
from sinks.delta.commits import GroupCommit, retrying
from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile
from sinks.delta.files import FileWriter, open_parquet
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.history.metadata_versions import Row, compare
from sinks.storage.errors import failed_by
from sinks.tables import IS_CURRENT, LOG_ID, TableSpec, metadata_table
from sinks.warehouse import absolute, ensure_table
from sources.errors import LogtwinError, MasterError, ReplicaError
from sources.metadata import MetadataKind
from sources.offsets import LogId

SURE_FOR: Final = timedelta(minutes=10)
"""How long the table is taken to have what was recorded."""

_TICK = timedelta(microseconds=1)
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


class MetadataTable:
    """The metadata of one kind of one log. Driver only; one thread at a time. The first fetch creates the table."""

    def __init__(self, spark: SparkSession, warehouse: str, log_id: LogId, kind: MetadataKind) -> None:
        self.log_id = log_id
        self._kind = kind
        with _SHARING:  # of two that ask for the first time at once, the cache would make each its own
            self._shared = _shared(spark, absolute(warehouse), kind)
        self._spec, self._schema = self._shared.spec, self._shared.schema
        self._recorded: tuple[pa.Table, int, datetime] | None = None

    def record(self, items: pa.Table, fetched_at: datetime, version: int = 0) -> int:
        """Record that at `fetched_at` the master had exactly `items`. Returns how many versions began or ended.

        If that is 0, nothing is committed but the master's `version` if it grew. What this object has recorded last is
        not looked at again for SURE_FOR: others may write the table, or remove it. If the clock went back, the time of
        the last change plus a microsecond is used for `fetched_at`.
        Raises MasterError if `version` is below the recorded one: the items are older, and are not taken.
        Raises ReplicaError, ConfigurationError (a table that is not ours).
        """
        if self._recorded is not None:
            recorded, numbered, at = self._recorded
            if numbered == version and abs(fetched_at - at) < SURE_FOR and recorded.equals(items):
                return 0
        changed = self._shared.record(_Fetch(self, items.to_pylist(), fetched_at, version))
        self._recorded = items, version, fetched_at
        return changed

    def exchange(self, on: Snapshot, files: Sequence[StoredFile], fetch: _Fetch) -> _Exchange:
        """Prepare the changes by `fetch` on version `on`, where this log has the current `files`; write new files.

        Raises MasterError, OSError, ArrowException.
        """
        changed_at, recorded = self._last(on)
        if fetch.version < recorded:
            raise self._outdated(fetch.version, recorded)
        at = max(fetch.at, changed_at + _TICK)
        change = compare(self._kind, self._read(files), fetch.items, at)
        if change is None:
            return _Exchange(domains=self._domains(changed_at, fetch.version) if fetch.version > recorded else {})
        parts = ((self._partition(is_current=True), change.current), (self._partition(is_current=False), change.closed))
        added = [(partition, self._write(rows, partition, at)) for partition, rows in parts if rows]
        return _Exchange(files, added, self._domains(at, fetch.version), len(change.closed) + change.opened)

    @property
    def _domain(self) -> str:
        return f"logtwin.{self.log_id}"

    def _domains(self, changed_at: datetime, version: int) -> dict[str, str]:
        return {self._domain: json.dumps({"changed_at": changed_at.isoformat(), "version": version})}

    def _last(self, snapshot: Snapshot) -> tuple[datetime, int]:
        """When the metadata changed by the last commit of the log, and the master's number of that state."""
        text = snapshot.domains().get(self._domain)
        if text is None:
            return _EARLIEST, 0
        facts = json.loads(text)
        return datetime.fromisoformat(facts["changed_at"]), facts.get("version", 0)

    def _partition(self, *, is_current: bool) -> Partition:
        return {LOG_ID.name: str(self.log_id), IS_CURRENT.name: is_current}

    def _read(self, files: Sequence[StoredFile]) -> list[dict[str, Any]]:
        """The versions in `files`, without the partition columns: files that Spark wrote do not have them."""
        names = [name for name in self._schema.names if name not in self._spec.partitioning]
        schema = pa.schema([self._schema.field(name) for name in names])
        rows: list[dict[str, Any]] = []
        for file in files:
            with open_parquet(self._shared.kernel.path, file.path) as opened:
                found = opened.read(names)
                rows += found.select(names).cast(schema).to_pylist()
        return rows

    def _write(self, rows: Sequence[Row], partition: Partition, at: datetime) -> DataFile:
        """Write one file. It has the partition columns, too: not every reader takes them from the Delta log."""
        name = f"part-{at.astimezone(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4()}.zstd.parquet"
        with FileWriter(self._spec, self._shared.kernel.path, name) as writer:
            writer.write(pa.RecordBatch.from_pylist([{**row, **partition} for row in rows], schema=self._schema))
            return writer.finish()

    def _outdated(self, version: int, recorded: int) -> MasterError:
        return MasterError(
            f"the master's {self._kind.name} are older than the recorded ones, and were ignored",
            log=self.log_id,
            expected=f"version {recorded} or a later one",
            found=f"version {version}",
            hint="Its clock or its file went back; the next change with a later version is taken again.",
        )

    def failure(self, found: object) -> ReplicaError:
        return failed_by(found)(
            f"the {self._kind.name} that were fetched cannot be written to {self._shared.kernel.path}",
            log=self.log_id,
            found=found,
            hint="Nothing of them was committed; the next fetch brings them again.",
        )


@dataclass(eq=False, slots=True)
class _Fetch:
    """The metadata fetched of one log; then how many versions began or ended by it, or why it was not recorded."""

    table: MetadataTable
    items: Sequence[Row]
    at: datetime
    version: int
    changed: int = 0
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class _Exchange:
    """Files in place of others, what goes with them, and how many versions began or ended."""

    removed: Sequence[StoredFile] = ()
    added: Sequence[tuple[Partition, DataFile]] = ()
    domains: Mapping[str, str] = field(default_factory=dict)
    changed: int = 0


class _Shared:
    """The table of one kind, which all logs of a job write. Fetches that wait for a commit are recorded by the next."""

    def __init__(self, spark: SparkSession, spec: TableSpec, path: str) -> None:
        self.kernel = KernelTable(spark, path)
        self.spec, self.schema = spec, spec.schema.remove_metadata()
        self._is_ensured = False
        self._fetched: GroupCommit[_Fetch] = GroupCommit(self._record)

    def record(self, fetch: _Fetch) -> int:
        """Record `fetch`, as `MetadataTable.record` says. From any thread."""
        self._fetched.take(fetch)
        if fetch.error is not None:
            raise fetch.error
        return fetch.changed

    def _record(self, fetches: Sequence[_Fetch]) -> None:
        while fetches:
            # One of each log: if a log is started anew, its next fetch is compared with what the last one leaves.
            now = [*{one.table.log_id: one for one in reversed(fetches)}.values()]
            fetches = [one for one in fetches if one not in now]
            try:
                retrying(now[0].table.failure)(self._commit, now)
            except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
                for one in now:
                    one.error = error.of(str(one.table.log_id)) if isinstance(error, LogtwinError) else error

    def _commit(self, fetches: Sequence[_Fetch]) -> None:
        snapshot = self._snapshot()
        if snapshot is None:
            raise fetches[0].table.failure("the table is gone")
        current = self._current(snapshot, fetches)
        found = [self._exchange(snapshot, current.get(str(one.table.log_id), []), one) for one in fetches]
        domains = {name: text for one in found for name, text in one.domains.items()}
        if domains:
            removed, added = (
                [*chain(*parts)] for parts in zip(*((one.removed, one.added) for one in found), strict=True)
            )
            self.kernel.replace(snapshot, removed, added, domains=domains)
            self.kernel.run_hooks()

    def _snapshot(self) -> Snapshot | None:
        """The newest version of the table, which is made where it is missing: at first, and after it was removed."""
        on = self.kernel.snapshot() if self._is_ensured else None
        if on is None:
            ensure_table(self.kernel, self.spec)
            self._is_ensured = True
            on = self.kernel.snapshot()
        return on

    def _exchange(self, on: Snapshot, files: Sequence[StoredFile], fetch: _Fetch) -> _Exchange:
        """An error is that of `fetch` alone."""
        fetch.error = None
        try:
            found = fetch.table.exchange(on, files, fetch)
        except (OSError, pa.ArrowException) as error:
            fetch.error = fetch.table.failure(error)
        except LogtwinError as error:
            fetch.error = error
        else:
            fetch.changed = found.changed
            return found
        return _Exchange()

    def _current(self, on: Snapshot, fetches: Sequence[_Fetch]) -> dict[str, list[StoredFile]]:
        """The files with current versions of the logs, by log id."""
        one = {LOG_ID.name: str(fetches[0].table.log_id)} if len(fetches) == 1 else {}
        found: dict[str, list[StoredFile]] = {}
        for file in self.kernel.files(on, {IS_CURRENT.name: True, **one}):
            found.setdefault(file.action["partitionValues"][LOG_ID.name], []).append(file)
        return found


_SHARING = threading.Lock()


@lru_cache(maxsize=64)
def _shared(spark: SparkSession, warehouse: str, kind: MetadataKind) -> _Shared:
    spec = metadata_table(kind)
    return _Shared(spark, spec, spec.path(warehouse))
