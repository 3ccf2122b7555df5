"""What one log meets costs no other log's freshness more than a second; on a machine that does nothing else."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.faulty_link import Fault
from tests.pipeline.isolation import World, settled_world

pytestmark = [pytest.mark.soak, pytest.mark.spark]

MORE_S = 1.0
"""The promise."""

ROUNDS = 5
LASTS_S = 5.0


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with settled_world(spark, tmp_path_factory.mktemp("isolation")) as made:
        yield made


@pytest.mark.parametrize("fault", [Fault.SILENT, Fault.DRIPPING, Fault.GONE], ids=lambda fault: fault.value)
def test_a_master_that_fails(world: World, fault: Fault) -> None:
    quiet_s = world.worst_s(LASTS_S)
    for _ in range(ROUNDS):
        with world.failing(fault):
            assert world.worst_s(LASTS_S) < quiet_s + MORE_S
        world.reach("rocketmq/linked")
