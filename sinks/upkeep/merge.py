"""Merge many files into one, in a task: read them one after the other, write their rows. pyarrow only, no JVM.

Rows keep the order of the files, and their order within them. If a file cannot be read, or has another number of rows
than the Delta log says, no new file is written: the task returns an error in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sinks.delta.actions import Partition
from sinks.delta.data_file import DataFile
from sinks.delta.files import FileWriter, batches_of, in_columns, new_name, open_parquet, row_groups
from sinks.storage.errors import failed_by
from sinks.tables import TableSpec
from sources.errors import ReplicaError
from sources.offsets import Offset

_ROWS_AT_ONCE = 16_384


@dataclass(frozen=True, slots=True)
class Merge:
    """Files that become one: their paths in order, their number of rows, and the offset for `new_name`."""

    start: Offset
    records: int
    paths: Sequence[str]


@dataclass(frozen=True, slots=True)
class Merging:
    """The task function, picklable: merges files of `spec` in `folder`, all of one `partition`."""

    spec: TableSpec
    folder: str
    partition: Partition

    def __call__(self, what: Merge) -> DataFile:
        """Write one file with the rows of `what`. Raises ReplicaError."""
        batches = (batch for path in what.paths for batch in self._read(path))
        with FileWriter(self.spec, self.folder, new_name(what.start)) as writer:
            for rows in row_groups(batches):
                writer.write(rows)
            merged = writer.finish()
            if merged.records != what.records:
                expected = f"{what.records} rows in {len(what.paths)} files"
                raise self._failure(", ".join(what.paths[:1]), expected, merged.records)
        return merged

    def _read(self, path: str) -> Iterator[pa.RecordBatch]:
        names = [name for name in self.spec.schema.names if name not in self.partition]
        try:
            with open_parquet(self.folder, path) as parquet:
                for batch in batches_of(parquet, _ROWS_AT_ONCE, names):
                    yield self._complete(batch)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise self._failure(path, "a file of the table", error) from error

    def _complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` in the table's columns. Files that Spark wrote lack those of the partition."""
        schema = self.spec.schema.remove_metadata()
        for field in (field for field in schema if field.name in self.partition):
            batch = batch.append_column(
                field, pa.repeat(pa.scalar(self.partition[field.name], field.type), batch.num_rows)
            )
        return in_columns(batch, schema, self.spec.growing)

    def _failure(self, path: str, expected: str, found: object) -> ReplicaError:
        return failed_by(found)(
            f"the data file {self.folder.rstrip('/')}/{path} cannot be merged with others",
            expected=expected,
            found=found,
            hint="Nothing was changed. Run logtwin verify, which finds what is damaged, then logtwin repair.",
        )
