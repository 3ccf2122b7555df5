"""The rows of a result as text, in order.

Spark itself makes a line of JSON of each row, so that every type is written by one rule. Times are ISO 8601, UTC, to
the microsecond; binary is base64; maps, arrays, structs and variants are JSON, in cells as its text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructField, StructType, VariantType

from pipeline.sql.batches import arrow_batches

_OPTIONS: Final = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
_NESTED: Final = (ArrayType, MapType, StructType, VariantType)

Cells = list[str | None]


def json_lines(frame: DataFrame) -> Iterator[str]:
    """Each row as a JSON object, its columns in order."""
    lines = frame.select(F.to_json(F.struct("*"), _OPTIONS).alias("line"))
    return (line for batch in arrow_batches(lines) for line in batch["line"].to_pylist())


def cells(frame: DataFrame) -> Iterator[Cells]:
    """Each row as the texts of its values, in order; None for null. Columns may have the same name."""
    return map(_cells, json_lines(_flat(frame, None)))


def first_cells(frame: DataFrame, rows: int, most: int | None) -> list[Cells]:
    """The same of the first `rows` rows; of a value that is longer than `most`, somewhat more than so many characters.

    None: all of it.
    """
    lines = _flat(frame, most).select(F.to_json(F.struct("*"), _OPTIONS)).take(rows)
    return [_cells(line[0]) for line in lines]


def _flat(frame: DataFrame, most: int | None) -> DataFrame:
    """The same columns by their numbers, and none of them nested."""
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
