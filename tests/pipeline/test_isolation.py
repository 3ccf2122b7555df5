"""What one log meets stops no other log, and costs no other log's freshness more than a second.

Here nobody waits as long as for a log that is alone, whatever else the machine does; the second is held by
`tests/soak/test_isolation.py`, on a quiet machine. What ends one log alone: `test_logs_fail_alone.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from pipeline.inspect.selection import OneLog
from pipeline.job.replicate import Job
from pipeline.monitoring.progress import Phase
from pipeline.operate.backfill import run_backfill
from pipeline.operate.hole_filter import Wanted
from sources.errors import TakenOver
from sources.offsets import Offset
from tests.patience import wait_until
from tests.pipeline.faulty_link import Fault
from tests.pipeline.isolation import FAULT_S, World, settled_world
from tests.pipeline.read_back import table_of

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]

VERB_S = 11.0
"""The bound where a verb works. It is a process of its own, but here it shares the job's JVM and Spark's two cores."""


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with settled_world(spark, tmp_path_factory.mktemp("isolation")) as made:
        yield made


@pytest.mark.parametrize(
    ("fault", "is_of_all"),
    [
        (Fault.SILENT, True),
        (Fault.SILENT, False),  # it says what it holds, and does not send it: each batch has to find out anew
        (Fault.DRIPPING, True),
        (Fault.DRIPPING, False),
        (Fault.GONE, True),
    ],
    ids=lambda one: one.value if isinstance(one, Fault) else "everywhere" if one else "where it sends",
)
def test_a_master_that_fails(world: World, fault: Fault, is_of_all: bool) -> None:
    links = (world.ha, world.remoting) if is_of_all else (world.ha,)
    with world.watched(FAULT_S):
        for link in links:
            link.meet(fault)
        world.write("linked", 20)
    for link in links:
        link.meet(Fault.NONE)
    world.assert_equal("rocketmq/linked")


def test_another_job_takes_a_log_over(world: World) -> None:
    taken = "rocketmq/taken"
    other = Job(world.spark, world.config_of(taken), available_now=False, take_over=True)
    try:
        with world.watched():
            other.start()
            world.files["taken"].append(random.Random(8), 5)
        wait_until(lambda: world.member(taken).phase is Phase.FAILED, "the job to notice")
        assert isinstance(world.error(taken), TakenOver)
    finally:
        other.close()


def test_a_hole_is_filled_while_the_job_runs(world: World) -> None:
    holed, files = world.config_of("rocketmq/holed"), str(world.files["holed"].path)
    assert offsets_of(world, "rocketmq/holed") == [at for at in world.files["holed"].boundaries[:-1] if at != world.bad]
    world.files["holed"].flip(Offset(world.bad + 95))
    with world.watched(bound_s=VERB_S):
        run_backfill(world.spark, holed, OneLog(holed.logs[0]), Wanted.parse(None, None), path=files)
    assert offsets_of(world, "rocketmq/holed") == world.files["holed"].boundaries[:-1]
    assert world.member("rocketmq/holed").phase is Phase.RUNNING


def offsets_of(world: World, log_id: str) -> list[int]:
    found: list[int] = table_of(world.lake, "log", log_id)["offset"].to_pylist()
    return found
