"""Tables that are not made yet: their columns, without a row. And text as a literal of Spark's SQL."""

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
    """The statement that makes it a view of the current schema, with all comments."""
    comments = {field.name: field.metadata["comment"] for field in spark_schema(spec.schema)}
    columns = ", ".join(f"`{name}` COMMENT {literal(comment)}" for name, comment in comments.items())
    return f"CREATE OR REPLACE VIEW {spec.name} ({columns})\nCOMMENT {literal(spec.comment)}\nAS\n{empty_table(spec)}"


def literal(text: str) -> str:
    """`text` as a string of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
