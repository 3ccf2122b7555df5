"""What is imported, and what is said where a package of an extra is not installed."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from sources.errors import ConfigurationError
from sources.extras import EXTRA_OF, missing_package, naming_extras
from tests.resident import PROJECT

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]

WORKER = """Traceback (most recent call last):
  File "worker.py", line 1, in main
    func, profiler, deserializer, serializer = read_command(pickleSer, infile)
ModuleNotFoundError: No module named '{}'

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:595)
"""


def test_each_package_of_an_extra_is_listed() -> None:
    extras = PYPROJECT["optional-dependencies"]
    brought = {_name(one): extra for extra in ("kafka", "report", "sql") for one in extras[extra]}
    packages = {one: of.lower() for one, (of, *_) in packages_distributions().items() if not one.startswith("_")}
    assert {package: brought[of] for package, of in packages.items() if of in brought} == EXTRA_OF
    assert extras["all"] == ["logtwin[kafka,report,sql]"]
    assert not brought.keys() & {_name(one) for one in PYPROJECT["dependencies"]}


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=]", requirement)[0]


@pytest.mark.parametrize(("package", "extra"), EXTRA_OF.items())
def test_a_missing_package_is_named_with_the_extra_that_brings_it(package: str, extra: str) -> None:
    with pytest.raises(ConfigurationError) as caught, naming_extras():
        raise ModuleNotFoundError(f"No module named '{package}.some.module'")
    assert caught.value.problem == f"the Python package {package} is not installed"
    assert caught.value.hint == f"Install them with logtwin's wheel: pip install 'logtwin-….whl[{extra}]'."


def test_any_other_package_is_a_defect_of_the_installation() -> None:
    with pytest.raises(ModuleNotFoundError, match="pyarrow"), naming_extras():
        raise ModuleNotFoundError("No module named 'pyarrow'")


def test_spark_tells_of_it_in_a_trace() -> None:
    found = missing_package(WORKER.format("kafka"))
    assert found is not None
    assert "whl[kafka]" in str(found)
    assert missing_package(WORKER.format("kafkaesque")) is None
    assert missing_package("ValueError: No module named 'kafka'") is None


# what a process that plans a stream has to import: Spark starts one for each query, and does not fork it


PROGRAM = """
import sys
import sources.datasource
print(*sorted({"numba", "pandas", "sources.dister.log", "sources.kafka.streaming"} & set(sys.modules)))
import sources.kafka.topic
print(*sorted({"numba", "pandas", "sources.dister.log"} & set(sys.modules)))
"""


@pytest.mark.job
def test_planning_imports_neither_numba_nor_pandas_nor_other_masters() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
