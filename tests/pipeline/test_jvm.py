"""Spark's Python processes import pyspark from files, not from an archive."""

import importlib.util
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import py4j
import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from pipeline.spark import session
from pipeline.spark.jvm import compiled_home, home
from pipeline.system.folders import cache_file
from sources.errors import ConfigurationError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOGTWIN_CACHE", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path


def test_the_home_is_the_installed_one_without_archives_also_if_several_make_it_at_once(cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        (made,) = set(pool.map(lambda _: home(), range(8)))
    assert list((cache / "spark-home").iterdir()) == [made]
    installed = Path(pyspark.__file__).parent
    for one in ("jars", "bin/spark-submit"):
        assert (made / one).samefile(installed / one)
    archives = {one.name for one in (installed / "python" / "lib").iterdir()}
    found = {one.name: one for one in (made / "python" / "lib").iterdir()}
    assert found.keys() == archives
    modules = {next(place.iterdir()).resolve() for place in found.values()}
    assert modules == {installed.resolve(), Path(py4j.__file__).parent.resolve()}


def test_a_home_that_the_user_chose_is_taken_and_without_a_cache_the_installed_one(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "file").touch()
    monkeypatch.setenv("LOGTWIN_CACHE", str(cache / "file"))
    with compiled_home():
        assert "SPARK_HOME" not in os.environ
    with pytest.raises(ConfigurationError, match=r"the cache folder .*/file cannot be written; found File exists"):
        cache_file("said")
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with compiled_home():
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_what_cannot_be_linked_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError):
        home()
    assert list((cache / "spark-home").iterdir()) == []


@pytest.mark.parametrize(("master", "is_ours"), [("local[*]", True), ("yarn", False), ("spark://host:7077", False)])
def test_only_a_local_session_has_it(cache: Path, monkeypatch: pytest.MonkeyPatch, master: str, is_ours: bool) -> None:
    """YARN, for one, sends the archives of the driver's home to its containers."""
    monkeypatch.setattr(session, "started_gateway", lambda *_: sys.exit(os.environ.get("SPARK_HOME")))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with pytest.raises(SystemExit) as ended:
        session._start_jvm({"spark.master": master}, cache / "said")
    assert ended.value.code == (str(home()) if is_ours else None)


@pytest.mark.spark
def test_a_task_imports_compiled_modules(spark: SparkSession) -> None:
    def places(_: int) -> tuple[str, str]:
        import pyspark.worker

        return pyspark.worker.__file__, str(pyspark.worker.__spec__.cached)

    [(file, compiled)] = spark.sparkContext.parallelize([0], 1).map(places).collect()
    assert Path(file).is_file()
    assert Path(compiled).is_file()
