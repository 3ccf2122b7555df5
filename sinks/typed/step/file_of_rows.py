"""A data file that is created with its first row: most tasks have no dead letters, and some no rows."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

import pyarrow as pa

from sinks.delta.data_file import DataFile
from sinks.delta.files import FileWriter, new_name
from sinks.tables import TableSpec
from sinks.upkeep.merge import row_groups
from sources.offsets import Offset


class FileOfRows:
    """A file of the table `spec`, whose rows have an offset, in `folder`. Use as a context manager, as `FileWriter`."""

    def __init__(self, spec: TableSpec, folder: str) -> None:
        self._spec = spec
        self._folder = folder
        self._writer: FileWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._writer is not None:
            self._writer.__exit__(kind, error, at)

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._writer is None:
            name = new_name(Offset(batch["offset"][0].as_py()))
            self._writer = FileWriter(self._spec, self._folder, name).__enter__()
        self._writer.write(batch)

    def write_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Append `batches` in row groups of a reasonable size."""
        for group in row_groups(batches):
            self.write(group)

    def finish(self) -> tuple[DataFile, ...]:
        """Finish the file, and return it if there is one."""
        return () if self._writer is None else (self._writer.finish(),)
