"""Rows in files of a typed table, which no commit has to name, as Spark reads and writes them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sinks.files import DataFile, in_columns
from sinks.tables import TableSpec, spark_schema
from sinks.typed.file_of_rows import FileOfRows

_REPORT = pa.schema([pa.field("file", pa.binary())])


def rows_in(spark: SparkSession, spec: TableSpec, folder: str, names: Iterable[str]) -> DataFrame:
    """Those of files in the table's folder; a column that is younger than a file is null there."""
    paths = [f"{folder.rstrip('/')}/{name}" for name in names]
    return spark.read.schema(spark_schema(spec.schema)).parquet(*paths)


def written(rows: DataFrame, spec: TableSpec, folder: str) -> list[DataFile]:
    """Rows in the columns of `spec`, in new files: one a task. Raises what Spark raises."""
    writing = _Writing(spec, folder)
    made = rows.mapInArrow(lambda batches: writing(batches), "file binary").collect()
    return [pickle.loads(row["file"]) for row in made]  # noqa: S301 - our own tasks wrote it


@dataclass(frozen=True, slots=True)
class _Writing:
    """The task function, picklable: rows of `spec` into a file in `folder`."""

    spec: TableSpec
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.spec.schema.remove_metadata()
        with FileOfRows(self.spec, self.folder) as file:
            file.write_all(in_columns(batch, schema) for batch in batches)
            for made in file.finish():
                yield pa.record_batch([pa.array([pickle.dumps(made)])], schema=_REPORT)
