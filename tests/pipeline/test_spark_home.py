"""Spark's Python processes import pyspark from files, not from an archive."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import py4j
import pyspark
import pytest
from pyspark.sql import SparkSession

from pipeline.spark.spark_home import compiled_home, home


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOGTWIN_CACHE", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path


@pytest.mark.usefixtures("cache")
def test_it_is_the_installed_one_with_modules_in_place_of_archives() -> None:
    installed = Path(pyspark.__file__).parent
    assert (home() / "jars").samefile(installed / "jars")
    assert (home() / "bin" / "spark-submit").samefile(installed / "bin" / "spark-submit")
    archives = {one.name for one in (installed / "python" / "lib").iterdir()}
    found = {one.name: one for one in (home() / "python" / "lib").iterdir()}
    assert found.keys() == archives
    modules = {next(place.iterdir()).resolve() for place in found.values()}
    assert modules == {installed.resolve(), Path(py4j.__file__).parent.resolve()}


def test_several_processes_may_make_it_at_once(cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda _: home(), range(8)))) == 1
    assert list((cache / "spark-home").iterdir()) == [home()]


@pytest.mark.usefixtures("cache")
def test_a_jvm_is_started_with_it_and_nobody_else_sees_it() -> None:
    with compiled_home():
        assert os.environ["SPARK_HOME"] == str(home())
    assert "SPARK_HOME" not in os.environ


@pytest.mark.usefixtures("cache")
def test_a_home_that_the_user_chose_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with compiled_home():
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_without_a_cache_the_installed_one_is_taken(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "file").touch()
    monkeypatch.setenv("LOGTWIN_CACHE", str(cache / "file"))
    with compiled_home():
        assert "SPARK_HOME" not in os.environ


@pytest.mark.spark
def test_a_task_imports_compiled_modules(spark: SparkSession) -> None:
    def places(_: int) -> tuple[str, str]:
        import pyspark.worker

        return pyspark.worker.__file__, str(pyspark.worker.__spec__.cached)

    [(file, compiled)] = spark.sparkContext.parallelize([0], 1).map(places).collect()
    assert Path(file).is_file()
    assert Path(compiled).is_file()
