"""What a task does to make one file of many: read them one after the other, write their rows. pyarrow only, no JVM.

In comes one row for each file to write, with what to read (MERGES_SCHEMA); out goes one for each that is written
(MERGED_SCHEMA). Rows stay in the order of the files and within them. A file that cannot be read, or that has another
number of rows than the Delta log says, makes no new file: an error travels in its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from sinks.files import DataFile, FileWriter, new_name, open_parquet
from sinks.kernel import Partition
from sinks.tables import TableSpec
from sources.errors import LogtwinError, ReplicaError, error_from
from sources.offsets import Offset

MERGES_SCHEMA = pa.schema(
    [("number", pa.int32()), ("start", pa.int64()), ("records", pa.int64()), ("paths", pa.list_(pa.string()))]
)
MERGED_SCHEMA = pa.schema(
    [
        ("number", pa.int32()),
        ("name", pa.string()),
        ("size_bytes", pa.int64()),
        ("modified_ms", pa.int64()),
        ("records", pa.int64()),
        ("statistics", pa.string()),
        # JSON of LogtwinError.facts; nothing else but the number is set then
        ("error", pa.string()),
    ]
)
_ROWS_AT_ONCE = 16_384
_ROW_GROUP_BYTES = 16 << 20  # of Arrow columns: what a reader holds at once


@dataclass(frozen=True, slots=True)
class Merging:
    """The task function, picklable: files of `spec` in `folder`, all of one `partition`."""

    spec: TableSpec
    folder: str
    partition: Partition

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """`mapInArrow`'s shape: MERGES_SCHEMA in, MERGED_SCHEMA out."""
        for batch in batches:
            for row in batch.to_pylist():
                yield pa.RecordBatch.from_pylist([self._report(row)], schema=MERGED_SCHEMA)

    def _report(self, row: dict[str, Any]) -> dict[str, Any]:
        try:
            merged = self.merge(row["paths"], row["records"], row["start"])
        except LogtwinError as error:
            return {"number": row["number"], "error": json.dumps(error.facts())}
        return {"number": row["number"], **asdict(merged)}

    def merge(self, paths: Sequence[str], records: int, start: Offset) -> DataFile:
        """One file with the rows of `paths`, which are `records`. Raises ReplicaError."""
        batches = (batch for path in paths for batch in self._read(path))
        with FileWriter(self.spec, self.folder, new_name(start)) as writer:
            for group in row_groups(batches):
                writer.write(group)
            merged = writer.finish()
            if merged.records != records:
                raise self._failure(", ".join(paths[:1]), f"{records} rows in {len(paths)} files", merged.records)
        return merged

    def _read(self, path: str) -> Iterator[pa.RecordBatch]:
        names = [name for name in self.spec.schema.names if name not in self.partition]
        try:
            with open_parquet(self.folder, path) as parquet:
                for batch in parquet.iter_batches(_ROWS_AT_ONCE, columns=names):
                    yield self._complete(batch)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise self._failure(path, "a file of the table", error) from error

    def _complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """In the table's columns. Files that Spark wrote do not have those of the partition."""
        schema = self.spec.schema.remove_metadata()
        columns = [
            pa.repeat(pa.scalar(self.partition[field.name], field.type), batch.num_rows)
            if field.name in self.partition
            else batch.column(field.name).cast(field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _failure(self, path: str, expected: str, found: object) -> ReplicaError:
        return ReplicaError(
            f"the data file {self.folder.rstrip('/')}/{path} cannot be merged with others",
            expected=expected,
            found=found,
            hint="Nothing was changed. Run logtwin verify, which finds what is damaged, then logtwin repair.",
        )


def row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, in batches of a size that is worth a row group."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= _ROW_GROUP_BYTES:
            yield pa.concat_batches(held)
            held, held_bytes = [], 0
    if held:
        yield pa.concat_batches(held)


def unpack(row: dict[str, Any]) -> DataFile:
    """The file that a row of MERGED_SCHEMA reports. Raises the error that it carries."""
    if row["error"] is not None:
        raise error_from(json.loads(row["error"]))
    return DataFile(row["name"], row["size_bytes"], row["modified_ms"], row["records"], row["statistics"])
