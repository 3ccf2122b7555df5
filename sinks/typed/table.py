"""A typed table in Delta: read it, create it, and bring it on in commits that carry its position.

The table `schema_changes` says how its columns have changed; it follows the typed table's own state.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from sinks.books.follow_up_table import FollowingTable
from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile, Version
from sinks.delta.files import FileWriter
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.tables import SCHEMA_CHANGES, TableSpec
from sinks.typed.columns import FOLDER, Column, ColumnChange, columns_of, table_spec
from sinks.typed.state import DOMAIN, TypedState
from sinks.warehouse import absolute, ensure_table, names_in, spark_schema
from sources.errors import ReplicaError

ANEW: Final = ".anew"


@dataclass(frozen=True, slots=True)
class TypedView:
    """A version of a typed table: its columns and its state."""

    snapshot: Snapshot
    columns: tuple[Column, ...]
    state: TypedState | None


def path_of(warehouse: str, name: str) -> str:
    return table_spec(name, ()).path(absolute(warehouse))


def standing_at(version: Version, name: str) -> tuple[tuple[Column, ...], TypedState | None]:
    """The columns of the typed table `name` at `version`, and its state. Raises ReplicaError."""
    try:
        text = version.domain(DOMAIN)
        state = None if text is None else TypedState.from_json(text)
        return columns_of(json.loads(version.schema_json())), state
    except (KeyError, TypeError, ValueError) as error:
        raise ReplicaError(
            f"what the typed table {name} says of itself cannot be read",
            found=error,
            hint=f"logtwin tables rebuild {name} makes it anew from the log.",
        ) from error


class TypedTable:
    """The typed table `name` of a warehouse. Driver only; one thread at a time. Raises ReplicaError."""

    def __init__(self, spark: SparkSession, warehouse: str, name: str, *, anew: bool = False) -> None:
        """With `anew`, the table that is being rebuilt, in a folder beside it, until it takes its place."""
        self.name = name
        self.path = f"{path_of(warehouse, name)}{ANEW if anew else ''}"
        self.kernel = KernelTable(spark, self.path)

    def look(self) -> TypedView | None:
        """The newest version; None if there is no table."""
        on = self.kernel.snapshot()
        return None if on is None else self.view(on)

    def view(self, on: Snapshot) -> TypedView:
        return TypedView(on, *standing_at(on, self.name))

    def make(self, columns: Sequence[Column]) -> TypedView:
        """Create the table, unless somebody has just done so. Raises ConfigurationError if another table is there."""
        found = self.look()
        if found is None or found.state is None:
            # a table without a state was created just now, or is somebody else's
            ensure_table(self.kernel, table_spec(self.name, columns if found is None else found.columns))
            found = self.view(self.kernel.existing())
        return found

    def files(self, on: TypedView) -> list[StoredFile]:
        logs = () if on.state is None else on.state.logs
        found = {file.path: file for log_id in logs for file in self.kernel.files(on.snapshot, {"log_id": str(log_id)})}
        return list(found.values())

    def commit(
        self,
        on: TypedView,
        to: TypedState,
        *,
        added: Sequence[DataFile] = (),
        removed: Sequence[StoredFile] = (),
        columns: Sequence[Column] | None = None,
    ) -> None:
        """Bring the table from `on` to `to`. Raises KernelConflict if another commit has moved it since."""
        schema = None if columns is None else spark_schema(table_spec(self.name, columns).schema)
        self.kernel.replace(
            on.snapshot,
            removed,
            [({}, file) for file in added],
            domains={DOMAIN: to.as_json()},
            over_appends=True,  # nobody else appends without this domain
            schema=schema,
        )
        self.kernel.run_hooks()


def typed_names(spark: SparkSession, place: str) -> list[str]:
    """The names of the folders for typed tables in the warehouse `place`, including any that others put there."""
    return sorted(name for name in names_in(spark, f"{place.rstrip('/')}/{FOLDER}") if not name.endswith(ANEW))


def typed_specs(spark: SparkSession, place: str, wanted: Collection[str] | None = None) -> list[TableSpec]:
    """The typed tables in the warehouse `place`, with the columns that they have now. Tables of others are left out.

    `wanted` limits them to those names; None is all.
    """
    names = (name for name in typed_names(spark, place) if wanted is None or name in wanted)
    views = {name: TypedTable(spark, place, name).look() for name in names}
    return [
        table_spec(name, view.columns) for name, view in views.items() if view is not None and view.state is not None
    ]


class SchemaChanges:
    """The changes of one typed table. Driver only. Raises ReplicaError."""

    def __init__(self, spark: SparkSession, warehouse: str, name: str) -> None:
        self._path = SCHEMA_CHANGES.path(absolute(warehouse))
        self._name = name
        self._table = FollowingTable(spark, SCHEMA_CHANGES, self._path)
        self._known = 0

    def bring(self, table_id: str, changes: Sequence[ColumnChange]) -> None:
        """Add the changes that are not there yet. `changes` are all since the table with this Delta id was created."""
        if len(changes) <= self._known:
            return
        self._table.ensure()
        app = f"logtwin/table/{self._name}/{table_id}"  # a table that is created after a drop has a new id
        known = self._table.versions([app])[app]
        if len(changes) > known:
            self._table.append(app, len(changes), lambda: [self._file(changes[known:], known)])
            self._table.run_hooks()
        self._known = len(changes)

    def _file(self, changes: Sequence[ColumnChange], known: int) -> DataFile:
        at_us = time.time_ns() // 1000
        rows = [
            {
                "table": self._name, "number": known + 1 + number, "changed_at": at_us, "column": one.column,
                "change": one.change, "was": one.was, "type": one.kind, "log_id": one.log_id, "offset": one.offset,
            }
            for number, one in enumerate(changes)
        ]  # fmt: skip
        batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA_CHANGES.schema.remove_metadata())
        with FileWriter(SCHEMA_CHANGES, self._path, f"part-{uuid.uuid4()}.zstd.parquet") as writer:
            writer.write(batch)
            return writer.finish()
