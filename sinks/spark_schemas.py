"""The schemas of tables, as Spark has them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema with comments as Spark's, every column with its comment."""
    return StructType([_spark_field(field) for field in schema])


def _spark_field(field: pa.Field) -> StructField:
    kind = from_arrow_type(field.type, prefer_timestamp_ntz=False)
    metadata = {name.decode(): text.decode() for name, text in (field.metadata or {}).items()}
    return StructField(field.name, kind, field.nullable, metadata)
