"""Both real logs in one replica, filled once a process, in a session of its own that has its views.

The brokers' own name is b1 in both; two logs of one replica need two.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.history.metadata import MetadataTable
from sinks.views.registration import register
from sources.metadata import CONSUMER_OFFSETS, DELAY_OFFSETS, SUBSCRIPTION_GROUPS, TOPICS
from sources.offsets import LogId
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.metadata import items_of
from tests.sinks.batches import opened, ranges
from tests.truth import Fixture

LOG_IDS = {"4.9.7": LogId("rocketmq", "b497"), "5.5.0": LogId("rocketmq", "b550")}
FETCHED = datetime(2026, 11, 22, tzinfo=UTC)  # the day after the brokers were stopped
FILES = {
    TOPICS: "topics.json",
    SUBSCRIPTION_GROUPS: "subscriptionGroup.json",
    CONSUMER_OFFSETS: "consumerOffset.json",
    DELAY_OFFSETS: "delayOffset.json",
}
"""What a stopping broker leaves of each kind of metadata; it has the form of the answers."""


@pytest.fixture(scope="session")
def replica(
    spark: SparkSession, fixture_497: Fixture, fixture_550: Fixture, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The warehouse of both logs, with the metadata that their brokers had at the end."""
    warehouse = tmp_path_factory.mktemp("views")
    for fixture in (fixture_497, fixture_550):
        _fill(spark, warehouse, fixture)
    return warehouse


@pytest.fixture(scope="session")
def views(spark: SparkSession, replica: Path) -> SparkSession:
    """A session with the tables and views of `replica`: what other tests register does not touch it."""
    session = spark.newSession()
    register(session, str(replica))
    return session


@pytest.fixture
def log_id(fixture_log: Fixture) -> str:
    """The log of `replica` that `fixture_log` is."""
    return str(LOG_IDS[fixture_log.version])


def _fill(spark: SparkSession, warehouse: Path, fixture: Fixture) -> None:
    log_id = LOG_IDS[fixture.version]
    master = RocketMQLog(log_id=log_id, path=str(fixture.commitlog_path))
    opened(spark, warehouse, master)(ranges(0, fixture.max_offset, 1 << 21, str(log_id)))
    for kind, file in FILES.items():
        items = items_of(kind, (fixture.path / "config" / file).read_bytes())
        MetadataTable(spark, str(warehouse), log_id, kind).record(items, FETCHED)
