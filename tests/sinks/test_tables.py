"""The contract with analysts: names, order, types, comments, and that the document has them."""

from pathlib import Path

import pytest

from sinks.tables import LEDGER, LOG, METADATA_TABLES, TABLES, TableSpec
from sinks.warehouse import spark_schema

DOCUMENT = Path(__file__).parents[2] / "docs" / "tables.md"

# the issue's own list
COLUMNS = (
    "log_id string, epoch int, offset bigint, size bigint, kind string, topic string, queue_id int, "
    "queue_offset bigint, tags string, keys array<string>, unique_key string, store_timestamp timestamp, "
    "born_timestamp timestamp, "
    "body binary, properties map<string,string>, magic int, body_crc int, flag int, sys_flag int, born_host string, "
    "store_host string, reconsume_times int, prepared_transaction_offset bigint, tags_code bigint, "
    "stored_properties binary, stored_body binary"
)


def test_the_document_lists_every_column_and_those_of_the_log_are_the_issues() -> None:
    assert ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in spark_schema(LOG.schema)) == COLUMNS
    text = DOCUMENT.read_text()
    for spec in TABLES:
        for field in spark_schema(spec.schema):
            comment = field.metadata["comment"].replace("|", "/")
            assert f"| `{field.name}` | {field.dataType.simpleString()} | {comment} |" in text


@pytest.mark.parametrize("spec", [LOG, LEDGER, *METADATA_TABLES], ids=lambda spec: spec.name)
def test_comments_statistics_and_positions_that_never_expire(spec: TableSpec) -> None:
    for field in spark_schema(spec.schema):
        assert len(field.metadata["comment"]) > 10, field.name
    assert set(spec.clustering) <= set(spec.statistics) <= set(spec.schema.names)
    assert len(spec.clustering) <= 4
    assert "delta.setTransactionRetentionDuration" not in spec.properties
