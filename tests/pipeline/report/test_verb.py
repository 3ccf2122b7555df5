"""``logtwin report``, as an operator types it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.warehouse import ensure_tables
from tests.pipeline.operator_at_work import Operator

pytestmark = pytest.mark.spark


@pytest.fixture
def operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Operator:
    operator = Operator(tmp_path, capsys)
    operator.configure(path=str(tmp_path))
    return operator


def test_it_writes_a_page_and_says_where(spark: SparkSession, operator: Operator, tmp_path: Path) -> None:
    ensure_tables(spark, str(operator.lake))
    file = tmp_path / "now.html"
    assert operator.must("report", "--output", str(file)).out == f"{file}\n"
    text = file.read_text(encoding="utf-8")
    assert "Nothing is replicated yet." in text
    assert "rocketmq/test" in text
    assert str(operator.lake) in text


def test_it_says_at_once_where_it_cannot_write(operator: Operator, tmp_path: Path) -> None:
    said = operator.does("report", "--output", str(tmp_path / "nowhere" / "report.html"))
    assert (said.code, "cannot be written" in said.err) == (2, True)


def test_without_a_replica_it_says_what_makes_one(operator: Operator, tmp_path: Path) -> None:
    said = operator.does("report", "--output", str(tmp_path / "report.html"))
    assert (said.code, "no replica in" in said.err) == (5, True)
    assert not (tmp_path / "report.html").exists()
