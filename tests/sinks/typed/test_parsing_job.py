"""Which conditions over messages a plan that is kept can have."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sinks.delta.kernel import KernelTable
from sinks.typed.definition import Definition
from sinks.typed.step.parsing import Parsing
from sinks.typed.step.parsing_job import ParsingJob
from sources.errors import ConfigurationError

pytestmark = pytest.mark.spark


def prepared(spark: SparkSession, folder: Path, **how: Any) -> None:
    wanted = Definition(name="orders", **{"topics": ("orders",), **how})
    ParsingJob(spark, KernelTable(spark, str(folder / "log")), Parsing(wanted, "rows", "unfit")).prepare()


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("retries > 0", "other records"),
        pytest.param("stored_timestamp < delivered_timestamp", "other records", marks=pytest.mark.nightly),
        ("queue_offset IN (SELECT max(queue_offset) FROM messages)", "other records"),
        ("rand() > 2", "may not hold later"),
        ("born_timestamp > now() - INTERVAL 1 DAY", "may not hold later"),
        pytest.param("born_timestamp > current_date()", "may not hold later", marks=pytest.mark.nightly),
        pytest.param("unix_timestamp() > 1", "may not hold later", marks=pytest.mark.nightly),
        ("no_such_column > 1", "no_such_column"),
    ],
)
def test_conditions_on_more_than_the_record_are_refused(
    spark: SparkSession, tmp_path: Path, where: str, why: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"orders.*{why}.*where"):
        prepared(spark, tmp_path, where=where)


@pytest.mark.parametrize(
    "how",
    [
        {"where": "json:amount::INT > 1 AND properties['a'] = 'b' AND array_contains(keys, 'k') AND text LIKE '{%'"},
        pytest.param({"where": "batch_index IS NULL OR unique_key <> ''", "tags": ("a",)}, marks=pytest.mark.nightly),
        {"topics": (), "kafka_topics": ("kafka/c/t",), "where": "header_texts['a'] = 'b' AND value_json IS NOT NULL"},
    ],
)
def test_conditions_on_the_record_are_taken(spark: SparkSession, tmp_path: Path, how: dict[str, Any]) -> None:
    prepared(spark, tmp_path, **how)
