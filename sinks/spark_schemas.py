"""The schemas of tables as Spark types, and SQL for tables that do not exist yet: their columns, without rows."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from sinks.tables import TableSpec


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of an Arrow schema, with the comment of every column."""
    return StructType([_spark_field(field) for field in schema])


def _spark_field(field: pa.Field) -> StructField:
    kind = from_arrow_type(field.type, prefer_timestamp_ntz=False)
    metadata = {name.decode(): text.decode() for name, text in (field.metadata or {}).items()}
    return StructField(field.name, kind, field.nullable, metadata)


def empty_table(spec: TableSpec) -> str:
    """A query with the columns of `spec`, and no rows."""
    columns = (
        f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in spark_schema(spec.schema)
    )
    return f"SELECT {', '.join(columns)} WHERE false"


def empty_view(spec: TableSpec) -> str:
    """The statement that creates an empty view for `spec` in the current schema, with all comments."""
    comments = {field.name: field.metadata["comment"] for field in spark_schema(spec.schema)}
    columns = ", ".join(f"`{name}` COMMENT {literal(comment)}" for name, comment in comments.items())
    return f"CREATE OR REPLACE VIEW {spec.name} ({columns})\nCOMMENT {literal(spec.comment)}\nAS\n{empty_table(spec)}"


def literal(text: str) -> str:
    """`text` as a Spark SQL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
