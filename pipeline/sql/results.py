"""A result in one of four forms, written as it comes: the memory it takes does not depend on how many rows it has.

=========== ========================================================================================
``table``   for people: the first rows, and whether there are more
``csv``     RFC 4180 with LF, one line of names; null is nothing, an empty string is ``""``
``json``    an object a line, a key for each column, null ones too
``parquet`` one file; variants as text, for few can read them yet
=========== ========================================================================================

Spark itself makes a line of JSON of each row, so that every type is written by one rule. Times are ISO 8601, UTC, to
the microsecond; binary is base64; maps, arrays, structs and variants are JSON, in cells as its text.

Spark holds what tasks hand over in the driver's memory, a partition at a time and the next one, with every row of it.
So tasks pack their batches of Arrow and compress them: what is held is about as large as the partition is in files. How
large partitions and batches are, the session says (`pipeline.sql.reader`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import BinaryIO, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from pipeline.sql.output import Format, TextTable
from sources.errors import QueryError

_OPTIONS: Final = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
_NESTED: Final = (ArrayType, MapType, StructType, VariantType)

Cells = list[str | None]

TABLE_ROWS: Final = 1000
TABLE_CHARACTERS: Final = 1000
"""The longest value in a table. A body may have megabytes, and nobody reads them on a terminal."""


def arrow_batches(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    """Yield the rows. Names of columns must have no dots."""
    packed = frame.mapInArrow(_packed, "batch BINARY")
    for row in packed.toLocalIterator(prefetchPartitions=True):
        with pa.ipc.open_stream(row[0]) as stream:
            yield from stream


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack each batch into one row. Runs in a task."""
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
            stream.write_batch(batch)
        yield pa.record_batch({"batch": pa.array([sink.getvalue().to_pybytes()], pa.binary())})


def json_lines(frame: DataFrame) -> Iterator[str]:
    """Yield each row as a JSON object, its columns in order."""
    lines = frame.select(F.to_json(F.struct("*"), _OPTIONS).alias("line"))
    return (line for batch in arrow_batches(lines) for line in batch["line"].to_pylist())


def cells(frame: DataFrame) -> Iterator[Cells]:
    """Yield each row as the texts of its values, in order; None for null. Columns may have the same name."""
    return map(_cells, json_lines(_flat(frame, None)))


def first_cells(frame: DataFrame, rows: int, most: int | None) -> list[Cells]:
    """Return the cells of the first `rows` rows; of a value longer than `most`, somewhat more than so many characters.

    None: all of it.
    """
    lines = _flat(frame, most).select(F.to_json(F.struct("*"), _OPTIONS)).take(rows)
    return [_cells(line[0]) for line in lines]


def _flat(frame: DataFrame, most: int | None) -> DataFrame:
    """Name the columns by their numbers, and turn nested ones into JSON."""
    numbered = frame.toDF(*(str(at) for at in range(len(frame.columns))))
    return numbered.select(*(_cell(field, most).alias(field.name) for field in numbered.schema))


def _cell(field: StructField, most: int | None) -> Column:
    column, kind = F.col(f"`{field.name}`"), field.dataType
    if isinstance(kind, _NESTED):
        column, kind = F.to_json(column, _OPTIONS), StringType()
    if most is not None and isinstance(kind, StringType | BinaryType):
        return F.substring(column, 1, most + 1)
    return column


def _cells(line: str) -> Cells:
    values = json.loads(line, parse_int=str, parse_float=str).values()
    return [str(value).lower() if isinstance(value, bool) else value for value in values]


class WrittenRows(NamedTuple):
    """How many rows, whether there are more that were left out, and whether these are shown in part."""

    rows: int
    is_cut: bool = False
    is_narrowed: bool = False


Writer = Callable[[DataFrame, BinaryIO], WrittenRows]


def writer(form: Format, *, width: int | None, most: int | None = TABLE_CHARACTERS) -> Writer:
    """`width` and `most` are of a table: characters of a line, None for any, and of a value, None for all."""
    if form == "table":
        return partial(_table, width=width, most=most)
    return {"csv": _csv, "json": _json, "parquet": _parquet}[form]


def _table(frame: DataFrame, sink: BinaryIO, *, width: int | None, most: int | None) -> WrittenRows:
    found = first_cells(frame, TABLE_ROWS + 1, most)
    rows = found[:TABLE_ROWS]
    numeric = [isinstance(field.dataType, NumericType) for field in frame.schema]
    table = TextTable(frame.columns, numeric, rows, most)
    lines, is_narrowed = table.shown(width)
    for line in lines:
        sink.write(f"{line}\n".encode())
    return WrittenRows(len(rows), is_cut=len(found) > TABLE_ROWS, is_narrowed=is_narrowed)


def _csv(frame: DataFrame, sink: BinaryIO) -> WrittenRows:
    sink.write(_csv_line(frame.columns))
    rows = 0
    for row in cells(frame):
        sink.write(_csv_line(row))
        rows += 1
    return WrittenRows(rows)


def _csv_line(values: Sequence[str | None]) -> bytes:
    return (",".join(map(_csv_field, values)) + "\n").encode()


def _csv_field(value: str | None) -> str:
    """Write a field as psql and Spark do. Python's csv writes null as empty text, or from 3.12 on quotes all."""
    if value is None:
        return ""
    if value and not any(special in value for special in ',"\r\n'):
        return value
    return '"' + value.replace('"', '""') + '"'


def _json(frame: DataFrame, sink: BinaryIO) -> WrittenRows:
    _check_names(frame, "json")
    rows = 0
    for line in json_lines(frame):
        sink.write(f"{line}\n".encode())
        rows += 1
    return WrittenRows(rows)


def _check_names(frame: DataFrame, form: Format) -> None:
    twice = [name for name, count in Counter(frame.columns).items() if count > 1]
    if twice:
        raise QueryError(
            f"{form} needs columns of different names",
            found=f"{', '.join(twice)} more than once",
            hint="Give them names of their own with AS.",
        )


def _parquet(frame: DataFrame, sink: BinaryIO) -> WrittenRows:
    """Each batch that Spark hands over becomes a row group, front to back, so `sink` may be a pipe; it stays open.

    Variants become their JSON: few engines read them from Parquet.
    """
    _check_names(frame, "parquet")
    plain = _plain(frame)
    fields = zip(frame.columns, to_arrow_schema(plain.schema, timezone="UTC"), strict=True)
    schema = pa.schema([field.with_name(name) for name, field in fields])
    rows = 0
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd") as file:
        for batch in arrow_batches(plain):
            file.write_batch(batch.rename_columns(schema.names).cast(schema))
            rows += batch.num_rows
    return WrittenRows(rows)


def _plain(frame: DataFrame) -> DataFrame:
    """Name the columns by their numbers, because Spark takes a dot in a name for a field; cast variants."""
    numbered = frame.toDF(*(str(at) for at in range(len(frame.columns))))
    variants = (field.name for field in numbered.schema if isinstance(field.dataType, VariantType))
    return numbered.withColumns({name: F.to_json(F.col(name)) for name in variants})
