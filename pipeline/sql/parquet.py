"""A result as one Parquet file, written front to back: into a pipe as well.

Each batch that Spark hands over becomes a row group.
"""

from __future__ import annotations

from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import VariantType

from pipeline.sql.batches import arrow_batches


def write_parquet(frame: DataFrame, sink: BinaryIO) -> int:
    """How many rows. `sink` stays open. Variants become their JSON: few engines read them from Parquet."""
    plain = _plain(frame)
    fields = zip(frame.columns, to_arrow_schema(plain.schema, timezone="UTC"), strict=True)
    schema = pa.schema([field.with_name(name) for name, field in fields])
    rows = 0
    with pq.ParquetWriter(_Forward(sink), schema, compression="zstd") as file:
        for batch in arrow_batches(plain):
            file.write_batch(batch.rename_columns(schema.names).cast(schema))
            rows += batch.num_rows
    return rows


def _plain(frame: DataFrame) -> DataFrame:
    """The same columns by their numbers, for Spark takes a dot in a name for a field; no variants among them."""
    numbered = frame.toDF(*(str(at) for at in range(len(frame.columns))))
    variants = (field.name for field in numbered.schema if isinstance(field.dataType, VariantType))
    return numbered.withColumns({name: F.to_json(F.col(name)) for name in variants})


class _Forward:
    """A file that knows how far it is, which a pipe does not; what closes it leaves the sink open."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._at = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        self._at += len(data)
        return self._sink.write(data)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        self._sink.flush()

    def close(self) -> None:
        self.closed = True
