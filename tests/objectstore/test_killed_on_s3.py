"""``kill -9`` of a driver after each step of a batch into S3: a restart gives exactly one copy of everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import load
from pipeline.demo.s3_server import S3Server
from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.lake import Lake
from tests.objectstore.server import KEY_VARIABLE, PlainClient
from tests.pipeline.killed_driver import STEPS, kill_after
from tests.pipeline.masters import Served, embedded_master
from tests.pipeline.running import assert_covered, encoded, replicate_now
from tests.truth import Fixture

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(600)]

ALWAYS = ("commit",)  # the ledger is owed then; before the batch is there: tests/pipeline; a start takes half a minute
BATCH_BYTES = 1_000_000


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory, fixture_550: Fixture) -> Iterator[Served]:
    with embedded_master(tmp_path_factory.mktemp("master"), commitlog=fixture_550.commitlog_path) as master:
        yield master


@pytest.fixture
def job(tmp_path: Path, master: Served, lake: str, s3_link: FaultProxy) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(
        f'warehouse = "{lake}"\n[storage]\nendpoint = "{s3_link.endpoint}"\n'
        f'access_key = "env:{KEY_VARIABLE}"\nsecret_key = "env:{KEY_VARIABLE}"\n'
        '[spark]\n"spark.master" = "local[2]"\n"spark.driver.memory" = "512m"\n'
        f'[[logs]]\nid = "rocketmq/test"\nmaster = "{master.options["master"]}"\n'
        f'remoting = "{master.options["remoting"]}"\nmax_bytes_per_trigger = {BATCH_BYTES}\n'
    )
    return path


@pytest.mark.parametrize(
    "step", [step if step in ALWAYS else pytest.param(step, marks=pytest.mark.soak) for step in STEPS]
)
def test_a_restart_gives_exactly_one_copy(
    spark: SparkSession, master: Served, fixture_550: Fixture, s3: S3Server, job: Path, step: str
) -> None:
    with master.watched() as acknowledged:
        kill_after(step, job)

    # what the dead driver left: all of its second batch or nothing of it
    lake = Lake(s3)
    reached = lake.position("test")
    assert reached is not None
    assert BATCH_BYTES <= reached < 3 * BATCH_BYTES
    assert (reached >= 2 * BATCH_BYTES) == (step != "files")
    assert max(row["offset"] for row in lake.rows("log", "test")) < reached
    assert len(lake.rows("ledger", "test")) == (2 if step == "ledger" else 1)
    assert BATCH_BYTES <= max(acknowledged) <= reached

    assert b"_checkpoints" not in PlainClient.of(s3)("GET", "?list-type=2&prefix=lake/").body
    replicate_now(spark, load(job))
    table = lake.table("log").to_pyarrow_table().sort_by("offset")
    assert encoded(table) == fixture_550.log
    assert lake.position("test") == len(fixture_550.log)
    assert_covered(sorted(lake.rows("ledger", "test"), key=lambda row: int(row["start"])), fixture_550.log)
