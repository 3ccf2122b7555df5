"""SQL for tables that do not exist yet: their columns, without rows. And text as a Spark SQL literal."""

from __future__ import annotations

from sinks.spark_schemas import spark_schema
from sinks.tables import TableSpec


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
