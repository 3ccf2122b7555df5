"""A real broker counts connections: through a job's restart, and each verb, it never lists two of this replica's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, parse
from pipeline.inspect.selection import ConfiguredLog
from pipeline.operate.backfill import run_backfill
from pipeline.operate.hole_filter import Wanted
from pipeline.operate.repair import repair_logs
from pipeline.verify.run import Scope, verify_log
from sinks.batch.proof import ProvenBatch, SplitReport
from sinks.batch.replica import Replica
from sources.errors import MasterUnreachable
from sources.rocketmq.producer.workload import send_workload, workload
from tests.patience import eventually
from tests.peers.cluster import HOUSEKEEPING_MS, counting
from tests.peers.replicating import end_of, replicating, wait_for_all
from tests.peers.rocketmq import Broker

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]

ONE = {0, 1}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Its producers wait for nobody, which is quicker; it lists connections all the same."""
    settings: dict[str, str | int] = {"inSyncReplicas": 3, "haHousekeepingInterval": HOUSEKEEPING_MS}
    with Broker("5.5.0", tmp_path_factory.mktemp("counted-once"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def lake(spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replica of what the broker holds but for its beginning, whose job has ended."""
    lake = tmp_path_factory.mktemp("lake")
    send_workload(broker.address, workload(3), count=200)
    start = end_of(broker)
    send_workload(broker.address, workload(4), count=300)
    with counting(broker) as counts, replicating(spark, lake, broker, starting_offset=start) as job:
        wait_for_all(job, broker)
    assert set(counts) <= ONE
    return lake


Verb = Callable[[SparkSession, Config], object]


def verify(spark: SparkSession, config: Config) -> object:
    """For about two seconds, so that its connection is sure to be listed."""
    summary = verify_log(
        spark, config.warehouse, ConfiguredLog.alone(config.logs[0]), Scope(restart=True, max_mb_per_s=0.2)
    )
    assert summary.problem is None
    return summary


def backfill(spark: SparkSession, config: Config) -> object:
    return run_backfill(spark, config, ConfiguredLog.alone(config.logs[0]), Wanted.parse(None, None))


def repair(spark: SparkSession, config: Config) -> object:
    return list(repair_logs(config, "test", accept_master=False, take_over=False, dry_run=False))


def look(spark: SparkSession, config: Config) -> object:
    return list(repair_logs(config, "test", accept_master=False, take_over=False, dry_run=True))


def test_a_restart_proves_the_master_when_the_session_is_away(
    spark: SparkSession, broker: Broker, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch fails for once while the session is connected: the log starts again, and proves the master first."""
    failures = iter([MasterUnreachable("for once")])
    proven = Replica.proven

    def failing_once(self: Replica, reports: Sequence[SplitReport], **way: bool) -> ProvenBatch | None:
        for failure in failures:
            raise failure
        return proven(self, reports, **way)

    with counting(broker) as counts, replicating(spark, lake, broker) as job:
        wait_for_all(job, broker)
        assert eventually(lambda: counts[-1:] == [1])  # the session's
        monkeypatch.setattr(Replica, "proven", failing_once)
        send_workload(broker.address, workload(5), count=100)
        wait_for_all(job, broker)
        assert [one.failures for one in job.progress()] == [{"MasterUnreachable": 1}]
        assert eventually(lambda: counts[-1:] == [1])
    assert set(counts) == ONE


@pytest.mark.parametrize("verb", [verify, backfill, repair, look])
def test_a_verb_alone_is_one_connection_at_a_time(spark: SparkSession, broker: Broker, lake: Path, verb: Verb) -> None:
    config = parse({"warehouse": str(lake), "logs": [{"id": "rocketmq/b1", **broker.options}]}, where="test")
    with counting(broker) as counts:
        assert verb(spark, config)
    assert set(counts) <= ONE
    assert verb is not verify or set(counts) == ONE
    assert not list((lake / "_runs" / "_reading").rglob("*.json"))
