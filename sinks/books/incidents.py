"""The table `incidents`: what of a log was lost, damaged or found to differ.

An incident that a commit of the log passes over travels in the log's domain metadata, as the ledger rows do, and is
written after the commit, so no byte is skipped silently even if a process is killed in between. An incident that is
only found (by verify, by a start) is written by itself.

A log has few incidents. A change exchanges the files that hold them, in one commit built on the snapshot that was read,
and is repeated if anybody committed in between. Everything runs in the driver, without a Spark job.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sinks.delta.commits import retrying
from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile, newest
from sinks.delta.files import FileWriter, new_name, open_parquet
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.storage.errors import failed_by
from sinks.tables import INCIDENTS, LOG_ID, in_numbers
from sinks.values.incident import Incident, IncidentRow, Rows, State, with_found
from sinks.warehouse import absolute, ensure_table
from sources.errors import ReplicaError
from sources.offsets import LogId

_SCHEMA = INCIDENTS.schema.remove_metadata()
_IN_NUMBERS = in_numbers(_SCHEMA)
_DOMAIN: Final = "logtwin.incidents."


def logs_with_incidents(warehouse: str) -> list[LogId]:
    """Every log that has, or had, an incident. Raises ReplicaError."""
    version = newest(INCIDENTS.path(absolute(warehouse)))
    names = () if version is None else version.domains()
    return sorted(LogId.parse(name.removeprefix(_DOMAIN)) for name in names if name.startswith(_DOMAIN))


def _incidents_in(folder: str, files: Iterable[StoredFile], log_id: LogId) -> list[IncidentRow]:
    """The incidents of `log_id` in `files` of the table in `folder`, by epoch and offset. Raises ReplicaError."""
    try:
        rows, _ = _read(folder, files, log_id)
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise _failure("the incidents cannot be read", folder, log_id, error) from error
    return sorted(rows.values(), key=lambda row: (row.epoch, row.found.start, row.found.end, row.id))


def incidents_of(warehouse: str, log_ids: Iterable[LogId]) -> dict[LogId, list[IncidentRow]]:
    """The incidents of each of `log_ids`, at one version; none if there is no table. Raises ReplicaError."""
    folder = INCIDENTS.path(absolute(warehouse))
    version = newest(folder)
    files = {} if version is None else version.files
    return {log_id: _incidents_in(folder, files.values(), log_id) for log_id in log_ids}


def _read(folder: str, files: Iterable[StoredFile], log_id: LogId) -> tuple[Rows, pa.Table]:
    """The rows of the log, and those of other logs, which OPTIMIZE may have put into the same files."""
    tables = [_SCHEMA.empty_table()]
    for file in files:
        with open_parquet(folder, file.path) as opened:
            tables.append(opened.read().select(_SCHEMA.names).cast(_SCHEMA))
    table = pa.concat_tables(tables)
    is_ours = pc.equal(table[LOG_ID.name], str(log_id))
    ours = [IncidentRow.from_dict(values) for values in table.filter(is_ours).cast(_IN_NUMBERS).to_pylist()]
    return {row.id: row for row in ours}, table.filter(pc.invert(is_ours))


def _failure(problem: str, folder: str, log_id: LogId, found: object) -> ReplicaError:
    return failed_by(found)(
        problem,
        log=log_id,
        found=found,
        hint=f"Check that the table {folder} can be read and written, then run it again.",
    )


class IncidentsTable:
    """The incidents of one log. Driver only; one thread at a time. The table is created with the first incident."""

    def __init__(self, spark: SparkSession, warehouse: str, log_id: LogId) -> None:
        self._table = KernelTable(spark, INCIDENTS.path(absolute(warehouse)))
        self._log_id = log_id

    def all(self) -> list[IncidentRow]:
        """All incidents, ordered by epoch and offset; none if there is no table. Raises ReplicaError."""
        snapshot = self._table.snapshot()
        return [] if snapshot is None else _incidents_in(self._table.path, self._files(snapshot), self._log_id)

    def open(self) -> list[IncidentRow]:
        """The incidents that are neither healed nor closed. Raises ReplicaError."""
        return [row for row in self.all() if row.state is State.OPEN]

    def record(self, epoch: int, incidents: Sequence[Incident]) -> int:
        """Add `incidents` of the history `epoch`, all open, as `with_found` says. Returns how many rows changed.

        Raises ReplicaError, ConfigurationError (a table that is not ours).
        """
        if not incidents:
            return 0
        ensure_table(self._table, INCIDENTS)
        found = [IncidentRow(id=one.id_in(self._log_id, epoch), epoch=epoch, found=one) for one in incidents]
        return self._change(lambda rows: with_found(rows, found))

    def end(self, ids: Sequence[str], state: State, note: str, at_us: int) -> int:
        """Mark the open incidents among `ids` as healed or closed. Returns how many there were. Raises ReplicaError."""
        if not ids or self._table.snapshot() is None:
            return 0

        def ended(rows: Rows) -> Rows:
            wanted = (rows[name] for name in ids if name in rows and rows[name].state is State.OPEN)
            return rows | {row.id: replace(row, state=state, note=note, ended_at=at_us) for row in wanted}

        return self._change(ended)

    def _change(self, change: Callable[[Rows], Rows]) -> int:
        try:
            return retrying(self._not_written)(self._exchange, change)
        except (OSError, pa.ArrowException, KeyError, ValueError) as error:
            raise self._not_written(error) from error

    def _exchange(self, change: Callable[[Rows], Rows]) -> int:
        snapshot = self._table.snapshot()
        if snapshot is None:
            raise self._not_written("the table is gone")
        files = self._files(snapshot)
        before, others = _read(self._table.path, files, self._log_id)
        after = change(before)
        changed = sum(before.get(name) != row for name, row in after.items())
        if changed:
            domain = {f"{_DOMAIN}{self._log_id}": json.dumps({"commit": uuid.uuid4().hex})}
            self._table.replace(snapshot, files, [({}, self._write(after, others))], domains=domain)
            self._table.run_hooks()
        return changed

    def _files(self, snapshot: Snapshot) -> list[StoredFile]:
        return self._table.files(snapshot, {LOG_ID.name: str(self._log_id)})

    def _write(self, rows: Rows, others: pa.Table) -> DataFile:
        values = [{LOG_ID.name: str(self._log_id), **row.as_dict()} for row in rows.values()]
        ours = pa.Table.from_pylist(values, schema=_SCHEMA)
        first = min(row.found.start for row in rows.values())
        with FileWriter(INCIDENTS, self._table.path, new_name(first)) as writer:
            for batch in pa.concat_tables([ours, others]).combine_chunks().to_batches():
                writer.write(batch)
            return writer.finish()

    def _not_written(self, found: object) -> ReplicaError:
        return _failure("the incidents cannot be written", self._table.path, self._log_id, found)
