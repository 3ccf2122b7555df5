"""Every verb beside the stream on one warehouse on S3: a hole, filled; another master; tidying up.

What they ask of the store is bounded: docs/scaling.md.
"""

import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.demo.s3_server import S3Server
from pipeline.inspect.coverage import LogCoverage, coverages
from pipeline.inspect.incidents import Incidents, Listed
from pipeline.inspect.selection import ConfiguredLog
from pipeline.inspect.status import statuses
from pipeline.operate.backfill import Wanted, run_backfill
from pipeline.operate.rebuild import CommitLogRebuild
from sinks.healing.repair import Repair
from sinks.storage.hadoop import reach
from sinks.storage.place import placed
from sinks.storage.settings import VARIABLE
from sources.options import ReadOptions
from sources.registry import open_log
from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.server import KEY_VARIABLE, at, with_own_bucket
from tests.objectstore.twin import Twin
from tests.pipeline.running import replicate_now

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MESSAGES = 300
BATCHES = 6
LOST = 3  # of the master's files, by its place among them
VERIFY_BESIDE, VERIFY_A_BATCH = 120, 18  # by a session that has not opened the tables
MAINTAIN_BESIDE, MAINTAIN_A_BATCH = 295, 16
IDLE_MAINTAIN = 300
STATUS = 90


@dataclass(frozen=True)
class Healed(Twin):
    """Its replica is reached by way of a link. It had a hole, which is filled."""

    link: FaultProxy
    seen: LogCoverage
    open_then: list[Listed]


@pytest.fixture(scope="module")
def twin(
    spark: SparkSession, s3_process: S3Server, s3_way: FaultProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Healed]:
    """Replicated without one of the master's files, which was lost and comes back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, at(s3_way.endpoint).as_text())
        key, warehouse = f"env:{KEY_VARIABLE}", f"s3://{with_own_bucket(s3_process).bucket}/lake"
        storage = {"endpoint": s3_way.endpoint, "access_key": key, "secret_key": key}
        twin = Twin(spark, tmp_path_factory.mktemp("twin"), warehouse, storage, BATCHES)
        twin.log.append(random.Random(1), MESSAGES)
        config = twin.config()
        reach(spark, placed(warehouse), tempfile.gettempdir())
        lost = twin.log.lose(LOST)
        replicate_now(spark, config)
        shutil.copyfile(twin.log.archive / lost.name, lost)
        (seen,), open_then = coverages(config), Incidents(config, "").open()
        run_backfill(spark, config, ConfiguredLog.alone(config.logs[0]), Wanted.parse(None, None), path=None)
        yield Healed(spark, twin.folder, warehouse, storage, BATCHES, s3_way, seen, open_then)


def test_a_hole_is_seen_and_filled(twin: Healed) -> None:
    assert twin.seen.complete is not None
    (missing,), (found,) = twin.seen.complete.missing, twin.open_then
    assert missing.incident is not None
    assert missing.incident.id == found.row.id
    (seen,) = coverages(twin.config())
    assert (seen.problem, seen.complete and seen.complete.missing) == (None, ())
    assert Incidents(twin.config(), "").open() == []
    with twin.link.counted() as asked:
        (status,) = statuses(twin.config())
    assert (status.position, status.lag, status.phase) == (twin.log.end, 0, "done")
    assert len(asked) <= STATUS, asked.table()


@pytest.mark.nightly
def test_every_byte_is_the_masters(twin: Healed) -> None:
    with twin.link.counted() as asked:
        twin.assert_equal()
    assert len(asked) <= VERIFY_BESIDE + VERIFY_A_BATCH * BATCHES, asked.table()


@pytest.mark.nightly
def test_the_files_come_out_of_the_tables(twin: Healed, tmp_path: Path) -> None:
    options = ReadOptions(id="rocketmq/test", path="/gone")
    CommitLogRebuild(twin.spark, twin.config().warehouse, options).write(tmp_path / "new", None, zero_holes=False)
    made = b"".join(file.read_bytes() for file in sorted((tmp_path / "new").iterdir()))
    held = b"".join(file.read_bytes() for file in sorted(twin.log.path.iterdir()))
    assert made.rstrip(b"\0") == held[: len(made)].rstrip(b"\0")
    assert len(made) >= twin.log.end


@pytest.mark.nightly
def test_back_to_what_another_master_shares_and_tidied_up(twin: Healed) -> None:
    """Maintained three times: there is much to do, little, and nothing, where its checkpoint is written over one."""
    end = twin.log.end
    common = twin.log.rewrite_from_the_middle()
    config = twin.config()
    done = Repair(twin.spark, config.warehouse, open_log(config.logs[0])).run(accept_master=False)
    assert done.back is not None
    assert (done.back.found.common, done.back.bytes) == (common, end - common)
    replicate_now(twin.spark, config)
    twin.assert_equal()
    assert statuses(config)[0].epoch == 1

    with twin.link.counted() as asked:
        tidied = twin.maintain()
    assert tidied["log", "merge"].files_after == 1 < tidied["log", "merge"].files_before
    assert tidied["ledger", "merge"].files_after == 1 < tidied["ledger", "merge"].files_before
    assert tidied["log", "vacuum"].files_before > tidied["log", "vacuum"].files_after
    assert len(asked) <= MAINTAIN_BESIDE + MAINTAIN_A_BATCH * BATCHES, asked.table()
    assert twin.maintain()["log", "vacuum"].files_after <= 2
    with twin.link.counted() as asked:
        idle = twin.maintain()
    assert idle["log", "log"].files_before == idle["log", "log"].files_after
    assert len(asked) <= IDLE_MAINTAIN, asked.table()

    twin.log.append(random.Random(2), 60)
    replicate_now(twin.spark, twin.config())
    twin.assert_equal()
