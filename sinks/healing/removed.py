"""The audit table `removed`, which keeps rows that a repair takes out of a table of records, each once. Driver only."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sinks.books.follow_up_table import FollowingTable
from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile
from sinks.delta.files import FileWriter, new_name
from sinks.state.rewrite import rows_of
from sinks.storage.errors import reported_as
from sinks.tables import log_table, removed_table
from sinks.warehouse import absolute
from sources.offsets import LogId, Offset

_FILE_BYTES = 256 * 1024 * 1024  # of Arrow's, before compression


class Removed:
    """The audit table, for rows of one log. The table is created with its first row."""

    def __init__(self, spark: SparkSession, warehouse: str, log_id: LogId) -> None:
        self._log = log_table(log_id)
        self._log_path = self._log.path(absolute(warehouse))
        self._spec = removed_table(log_id)
        self._table = FollowingTable(spark, self._spec, self._spec.path(absolute(warehouse)))
        self._log_id = log_id

    def keep(
        self, files: Sequence[StoredFile], condition: pc.Expression, *, epoch: int, app_id: str, version: int
    ) -> None:
        """Copy the rows of the log's `files` that meet `condition`, as removed by `epoch`.

        A second call with the same transaction version of `app_id` copies nothing. Raises ReplicaError.
        """
        if not files:
            return

        def write() -> Sequence[DataFile]:
            with reported_as(
                f"rows that are to be taken out cannot be copied to {self._table.path}",
                log=self._log_id,
                hint="Nothing was taken out. Check that the table's storage can be written, then run it again.",
            ):
                return list(self._written(files, condition, epoch))

        self._table.ensure()
        self._table.append(app_id, version, write)
        self._table.run_hooks()

    def _written(self, files: Sequence[StoredFile], condition: pc.Expression, epoch: int) -> Iterator[DataFile]:
        now = pa.scalar(time.time_ns() // 1000, pa.int64()).cast(self._spec.schema.field("removed_at").type)
        batches = (
            self._with_reason(chosen, epoch, now)
            for file in files
            for batch in rows_of(self._log_path, self._log, file, self._log_id)
            if (chosen := batch.filter(condition)).num_rows
        )
        for first in batches:
            start = Offset(first.column("offset")[0].as_py())
            with FileWriter(self._spec, self._table.path, new_name(start)) as writer:
                writer.write(first)
                written_bytes = first.nbytes
                while written_bytes < _FILE_BYTES and (batch := next(batches, None)) is not None:
                    writer.write(batch)
                    written_bytes += batch.nbytes
                yield writer.finish()

    def _with_reason(self, batch: pa.RecordBatch, epoch: int, now: pa.Scalar) -> pa.RecordBatch:
        epochs = pa.repeat(pa.scalar(epoch, pa.int32()), batch.num_rows)
        columns = [*batch.columns, epochs, pa.repeat(now, batch.num_rows)]
        return pa.RecordBatch.from_arrays(columns, schema=self._spec.schema.remove_metadata())
