"""One Airflow for the tests, and a stand-in for Spark."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.spark.jars import session_jars
from tests.airflow.installation import PROJECT, Airflow, Api, services


@pytest.fixture(scope="package")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    """An installation with a database of its own."""
    return Airflow.made(tmp_path_factory.mktemp("airflow"))


@pytest.fixture(scope="package")
def api(airflow: Airflow) -> Iterator[Api]:
    """Its services run: no longer than these tests, for they cost what others measure."""
    with services(airflow) as running:
        yield running


@pytest.fixture
def submitted(api: Api) -> Iterator[None]:
    """Spark runs in the submitting process, with the code of this project."""
    settings = {
        "application": str(PROJECT / "pipeline" / "submit.py"),
        "packages": None,
        "jars": ",".join(str(jar) for jar in session_jars("s3a")),
        "conf": {
            "spark.driver.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
        },
        "env_vars": {"PYTHONPATH": str(PROJECT), "PYSPARK_PYTHON": sys.executable},
    }
    with api.variable("logtwin", settings):
        yield


class StandIn:
    """What the stand-in for spark-submit is told and was asked, see `stand_in/spark3-submit`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for file in folder.iterdir():
            file.unlink()

    def answers(self, verb: str, answer: object) -> None:
        (self._folder / f"{verb}.json").write_text(json.dumps(answer))

    def exits(self, verb: str, code: int) -> None:
        (self._folder / f"{verb}.code").write_text(str(code))

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Each with the arguments for `spark`, script included, and for the `verb`."""
        file = self._folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def verbs(self) -> list[str]:
        return [" ".join(call["verb"]) for call in self.calls]


@pytest.fixture
def stand_in(airflow: Airflow) -> StandIn:
    """A new one: nothing asked, nothing told."""
    return StandIn(airflow.stand_in)
