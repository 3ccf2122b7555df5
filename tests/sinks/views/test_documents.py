"""docs/views.md says what there is, and the queries of docs/sql.md about a broker's log have answers."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.views.definition import VIEWS, view

DOCS = Path(__file__).parents[3] / "docs"
SHOP, BROKER = "## After `make run`", "## A log with everything in it"


def questions(part: str) -> list[tuple[str, str]]:
    """The questions of a part of docs/sql.md, each with its query."""
    text = (DOCS / "sql.md").read_text()
    text = text[text.index(part) + len(part) :].partition("\n## ")[0]
    return re.findall(r"\*\*(.*?)\*\*.*?```sql\n(.*?);\n```", text, re.S)


@pytest.mark.spark
def test_every_column_of_every_view_is_listed_and_no_other(views: SparkSession) -> None:
    text = (DOCS / "views.md").read_text()
    assert re.findall(r"^## `(\w+)`", text, re.M) == list(VIEWS)
    for name in VIEWS:
        section = text[text.index(f"## `{name}`: {view(name).comment}\n") :].partition("\n## ")[0]
        assert re.findall(r"^\| `.*$", section, re.M) == [
            f"| `{field.name}` | {field.dataType.simpleString()} | {view(name).columns[field.name]} |"
            for field in views.table(name).schema
        ]


def test_ten_questions_are_asked() -> None:
    asked = [question for part in (SHOP, BROKER) for question, _ in questions(part)]
    assert [question.partition(".")[0] for question in asked[:10]] == [str(number) for number in range(1, 11)]


@pytest.mark.spark
def test_every_question_can_be_asked(views: SparkSession) -> None:
    """Of the views as they are: Spark knows every name and type."""
    for question, query in (*questions(SHOP), *questions(BROKER)):
        assert views.sql(query).columns, question


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize(("question", "query"), questions(BROKER))
def test_questions_about_the_log_of_a_real_broker_have_answers(views: SparkSession, question: str, query: str) -> None:
    assert views.sql(query).collect(), question
