"""Fixtures and hypothesis profiles of the whole suite."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from tests import truth
from tests.spark_session import delta_session

settings.register_profile("quick", max_examples=30, deadline=None)
settings.register_profile("exhaustive", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("LOGTWIN_HYPOTHESIS", "quick"))

_LONGEST_FIRST = ("airflow", "peer", "spark")


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several processes: a module, and all of Airflow, stays in one; what takes minutes begins first."""
    if not hasattr(config, "workerinput"):
        return
    groups: dict[str, int] = {}
    for item in items:
        group, weight = _group_of(item), _weight_of(item)
        groups[group] = max(groups.get(group, 0), weight)
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: -groups[_group_of(item)])  # stable: a group keeps its order


def _group_of(item: pytest.Item) -> str:
    return "airflow" if item.get_closest_marker("airflow") else item.nodeid.partition("::")[0]


def _weight_of(item: pytest.Item) -> int:
    marked = (len(_LONGEST_FIRST) - at for at, name in enumerate(_LONGEST_FIRST) if item.get_closest_marker(name))
    return max(marked, default=0)


@pytest.fixture(scope="session")
def fixture_497(tmp_path_factory: pytest.TempPathFactory) -> truth.Fixture:
    """The log of a real 4.9.7 broker."""
    return truth.extract("4.9.7", tmp_path_factory.mktemp("fixture-497"))


@pytest.fixture(scope="session")
def fixture_550(tmp_path_factory: pytest.TempPathFactory) -> truth.Fixture:
    """The log of a real 5.5.0 broker."""
    return truth.extract("5.5.0", tmp_path_factory.mktemp("fixture-550"))


@pytest.fixture(scope="session", params=truth.VERSIONS)
def fixture_log(request: pytest.FixtureRequest) -> truth.Fixture:
    """Each of these logs in turn."""
    fixture: truth.Fixture = request.getfixturevalue({"4.9.7": "fixture_497", "5.5.0": "fixture_550"}[request.param])
    return fixture


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the process."""
    session = delta_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
