"""Data files of a table with a key, and some of their rows: read in tasks, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds

from sinks.delta.files import batches_of, group_bounds, in_columns, open_parquet
from sinks.storage.errors import reported_as
from sinks.tables import TableSpec
from sinks.typed.columns import VALID_TO
from sinks.typed.step.newest import normal_form
from sources.errors import ReplicaError

_ROWS_AT_ONCE: Final = 16_384


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some of the `records` rows of a file, as a bit for each."""

    records: int
    bits: np.ndarray

    @classmethod
    def all(cls, records: int) -> Rows:
        return cls.of(np.ones(records, dtype=bool))

    @classmethod
    def of(cls, are_in: np.ndarray) -> Rows:
        return cls(len(are_in), np.packbits(are_in))

    @classmethod
    def at(cls, numbers: np.ndarray, records: int) -> Rows:
        are_in = np.zeros(records, dtype=bool)
        are_in[numbers] = True
        return cls.of(are_in)

    @property
    def are_in(self) -> np.ndarray:
        """Whether each row is one of them."""
        return np.unpackbits(self.bits, count=self.records).astype(bool)

    @property
    def count(self) -> int:
        return int(self.are_in.sum())


@dataclass(frozen=True, slots=True)
class KeyedFiles:
    """Reads data files of the table `spec` in `folder`, in tasks; picklable. Raises ReplicaError."""

    spec: TableSpec
    folder: str
    key: tuple[str, ...]

    @property
    def have_history(self) -> bool:
        return VALID_TO.name in self.spec.schema.names

    @contextmanager
    def opened(self, name: str, records: int) -> Iterator[pq.ParquetFile]:
        """Open a file, which must have `records` rows."""
        rebuild = f"Nothing was changed. logtwin tables rebuild {self.spec.name} makes it anew from the log."
        unread = reported_as(
            f"a data file of the typed table {self.spec.name} cannot be read",
            expected=f"the file {self.folder.rstrip('/')}/{name}",
            hint=rebuild,
        )
        with unread, open_parquet(self.folder, name) as parquet:
            if parquet.metadata.num_rows != records:
                raise ReplicaError(
                    f"a data file of the typed table {self.spec.name} has another number of rows",
                    expected=f"{records} in {name}",
                    found=parquet.metadata.num_rows,
                    hint=rebuild,
                )
            yield parquet

    def batches(self, parquet: pq.ParquetFile, columns: Sequence[str], wanted: Rows) -> Iterator[pa.RecordBatch]:
        """Some columns of the rows `wanted`; null where a column is newer than the file."""
        schema, are_wanted, at = self._schema(columns), wanted.are_in, 0
        for group, records in enumerate(group_records(parquet)):
            in_group, at = are_wanted[at : at + records], at + records
            if not in_group.any():
                continue
            begin = 0
            for batch in batches_of(parquet, _ROWS_AT_ONCE, columns, [group]):
                in_batch, begin = in_group[begin : begin + batch.num_rows], begin + batch.num_rows
                if in_batch.any():
                    yield in_columns(batch.filter(pa.array(in_batch)), schema, self.spec.growing)

    def rows(self, parquet: pq.ParquetFile, columns: Sequence[str], wanted: Rows) -> pa.Table:
        """The same as a table, in a form in which equal values are equal bytes."""
        return normal_form(pa.Table.from_batches(self.batches(parquet, columns, wanted), self._schema(columns)))

    def _schema(self, columns: Sequence[str]) -> pa.Schema:
        return pa.schema([self.spec.schema.field(one) for one in columns]).remove_metadata()


def group_records(parquet: pq.ParquetFile) -> list[int]:
    """The numbers of rows of a file's row groups."""
    metadata = parquet.metadata
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


def may_have(parquet: pq.ParquetFile, column: str, values: pa.Array) -> list[bool]:
    """Whether each row group of a file may have any of the `values`, by its bounds."""
    kind = values.type
    if not (kinds.is_integer(kind) or kinds.is_string(kind) or kinds.is_date(kind)):
        return [True] * parquet.num_row_groups
    return [
        bounds is None
        or pc.any(
            pc.and_(
                pc.greater_equal(values, pa.scalar(bounds[0], kind)), pc.less_equal(values, pa.scalar(bounds[1], kind))
            )
        ).as_py()
        for bounds in group_bounds(parquet, column)
    ]
