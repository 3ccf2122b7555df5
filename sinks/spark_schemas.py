"""The schemas of tables as Spark types."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of an Arrow schema, with the comment of every column."""
    return StructType([_spark_field(field) for field in schema])


def _spark_field(field: pa.Field) -> StructField:
    kind = from_arrow_type(field.type, prefer_timestamp_ntz=False)
    metadata = {name.decode(): text.decode() for name, text in (field.metadata or {}).items()}
    return StructField(field.name, kind, field.nullable, metadata)
