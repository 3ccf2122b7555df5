"""The table `schema_changes`: how the columns of typed tables have changed. It follows each table's own state."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from sinks.books.follow_up_table import FollowingTable
from sinks.delta.data_file import DataFile
from sinks.delta.files import FileWriter
from sinks.tables import SCHEMA_CHANGES
from sinks.typed.columns import ColumnChange
from sinks.warehouse import absolute


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
