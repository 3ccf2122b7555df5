"""docs/views.md says what there is, and every query of docs/sql.md has an answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import WorkloadConfig
from sinks.views.definition import VIEWS, view
from sinks.views.registration import register
from sources.rocketmq.producer.workload import send_workload, workload
from tests.pipeline.masters import embedded_master
from tests.pipeline.running import job_config, replicate_now

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[3] / "docs"
SHOP, BROKER = "## After `make run`", "## A log with everything in it"
MESSAGES = 1500
NOTHING_WAS_LOST = "What did we lose"


def questions(part: str) -> list[tuple[str, str]]:
    """The questions of a part of docs/sql.md, each with its query."""
    text = (DOCS / "sql.md").read_text()
    text = text[text.index(part) + len(part) :].partition("\n## ")[0]
    return re.findall(r"\*\*(.*?)\*\*.*?```sql\n(.*?);\n```", text, re.S)


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """A session with the views of what a short ``make run`` leaves."""
    folder = tmp_path_factory.mktemp("shop")
    with embedded_master(folder / "store") as served:
        send_workload(served.master.address, workload(WorkloadConfig().seed), count=MESSAGES)
        replicate_now(spark, job_config(folder / "lake", **served.options))
    session = spark.newSession()
    register(session, str(folder / "lake"))
    return session


def test_every_column_of_every_view_is_listed(views: SparkSession) -> None:
    text = (DOCS / "views.md").read_text()
    for name in VIEWS:
        assert f"## `{name}`: {view(name).comment}" in text
        for field in views.table(name).schema:
            assert f"| `{field.name}` | {field.dataType.simpleString()} | {view(name).columns[field.name]} |" in text


def test_ten_questions_are_asked() -> None:
    asked = [question for part in (SHOP, BROKER) for question, _ in questions(part)]
    assert [question.partition(".")[0] for question in asked[:10]] == [str(number) for number in range(1, 11)]


@pytest.mark.parametrize(("question", "query"), questions(SHOP))
def test_after_make_run(shop: SparkSession, question: str, query: str) -> None:
    rows = shop.sql(query).collect()
    assert bool(rows) != (NOTHING_WAS_LOST in question)
    if "What happened to order" in question:
        assert [row["topic"] for row in rows] == ["orders", *["payments"] * (len(rows) - 1)]
        assert len(rows) == 3  # made with the seed of the demo
    if "Is the replica complete" in question:
        assert [(row["complete_from"], row["gaps"]) for row in rows] == [(0, 0)]


@pytest.mark.parametrize(("question", "query"), questions(BROKER))
def test_of_the_log_of_a_real_broker(views: SparkSession, question: str, query: str) -> None:
    assert views.sql(query).collect(), question
