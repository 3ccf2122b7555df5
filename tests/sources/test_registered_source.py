"""`sources.datasource.register` without Spark: which Python its workers will be; with it: test_datasource.py."""

import sys
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark import SparkContext

from sources.datasource import LogtwinDataSource, register


@pytest.mark.parametrize(
    ("master", "chosen", "expected"),
    [
        ("local[2]", None, sys.executable),
        ("local[2]", "PYSPARK_PYTHON", "python3"),
        ("local[2]", "spark.pyspark.python", "python3"),
        ("spark://10.0.0.1:7077", None, "python3"),
    ],
)
def test_workers_on_this_machine_use_this_python_unless_another_is_chosen(
    monkeypatch: pytest.MonkeyPatch, master: str, chosen: str | None, expected: str
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if chosen == "PYSPARK_PYTHON":
        monkeypatch.setenv(chosen, "/opt/python")
    context: Any = Mock(master=master, pythonExec="python3")
    context.getConf.return_value.contains = lambda key: key == chosen
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    spark: Any = Mock()
    register(spark)
    assert context.pythonExec == expected
    spark.dataSource.register.assert_called_once_with(LogtwinDataSource)
