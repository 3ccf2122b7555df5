"""Both real logs in one replica, and the views over it and over the made rows of the modules that are run.

The brokers' own name is b1 in both; two logs of one replica need two.
"""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.views.registration import register
from sources.offsets import LogId
from tests.sinks.views.lake import Asked, write, write_log
from tests.truth import Fixture

LOG_IDS = {"4.9.7": LogId("rocketmq", "b497"), "5.5.0": LogId("rocketmq", "b550")}
FETCHED = datetime(2026, 11, 22, tzinfo=UTC)  # the day after the brokers were stopped


@pytest.fixture(scope="session")
def replica(fixture_497: Fixture, fixture_550: Fixture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse of both logs, with the metadata that their brokers had at the end."""
    warehouse = tmp_path_factory.mktemp("real")
    for fixture in (fixture_497, fixture_550):
        write_log(warehouse, LOG_IDS[fixture.version], fixture, FETCHED)
    return warehouse


@pytest.fixture(scope="session")
def asked(
    spark: SparkSession, replica: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Asked:
    """The views over both real logs and all made ones, in a session that nobody else registers anything in."""
    lake = tmp_path_factory.mktemp("views") / "lake"
    shutil.copytree(replica, lake)
    for module in dict.fromkeys(item.module for item in request.session.items if isinstance(item, pytest.Function)):
        for spec, made in getattr(module, "MADE_ROWS", {}).items():
            write(lake, spec, made)
    session = spark.newSession()
    register(session, str(lake))
    return Asked(session)


@pytest.fixture(scope="session")
def views(asked: Asked) -> SparkSession:
    """The session, for other questions than what a view has."""
    return asked.session


@pytest.fixture
def log_id(fixture_log: Fixture) -> str:
    return str(LOG_IDS[fixture_log.version])
