from __future__ import annotations

from pathlib import Path

from sinks.spark_schemas import spark_schema
from sinks.tables import TABLES

DOCUMENT = Path(__file__).parents[2] / "docs" / "tables.md"


def test_the_document_lists_every_column_with_its_type_and_comment() -> None:
    text = DOCUMENT.read_text()
    for spec in TABLES:
        for field in spark_schema(spec.schema):
            comment = field.metadata["comment"].replace("|", "/")
            assert f"| `{field.name}` | {field.dataType.simpleString()} | {comment} |" in text
