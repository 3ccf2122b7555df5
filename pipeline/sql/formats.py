"""A result in one of four forms, written as it comes: the memory it takes does not depend on how many rows it has.

=========== ========================================================================================
``table``   for people: the first rows, and whether there are more
``csv``     RFC 4180 with LF, one line of names; null is nothing, an empty string is ``""``
``json``    an object a line, a key for each column, null ones too
``parquet`` one file; variants as text, for few can read them yet
=========== ========================================================================================

Values in csv and json are those of `pipeline.sql.rows`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import BinaryIO, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.types import NumericType

from pipeline.sql.output import Format
from pipeline.sql.parquet import write_parquet
from pipeline.sql.rows import cells, first_cells, json_lines
from pipeline.sql.table import TextTable
from sources.errors import QueryError

TABLE_ROWS: Final = 1000
TABLE_CHARACTERS: Final = 1000
"""Of a value in a table. A body may have megabytes, and nobody reads them on a terminal."""


class WrittenRows(NamedTuple):
    """How many rows, and whether there are more that were left out."""

    rows: int
    is_cut: bool = False


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
    for line in TextTable(frame.columns, numeric, rows, most).lines(width):
        sink.write(f"{line}\n".encode())
    return WrittenRows(len(rows), is_cut=len(found) > TABLE_ROWS)


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
    """As psql and Spark write it. Python's csv writes null as an empty text, or (from 3.12 on) quotes every text."""
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


def _parquet(frame: DataFrame, sink: BinaryIO) -> WrittenRows:
    _check_names(frame, "parquet")
    return WrittenRows(write_parquet(frame, sink))


def _check_names(frame: DataFrame, form: Format) -> None:
    twice = [name for name, count in Counter(frame.columns).items() if count > 1]
    if twice:
        raise QueryError(
            f"{form} needs columns of different names",
            found=f"{', '.join(twice)} more than once",
            hint="Give them names of their own with AS.",
        )
