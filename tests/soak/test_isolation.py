"""What one log meets costs no other log's freshness more than a second; on a machine that does nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.faulty_link import Fault
from tests.pipeline.isolation import FAULT_S, World, settled_world

pytestmark = [pytest.mark.soak, pytest.mark.spark]

MORE_S = 1.0
"""The promise."""

ROUNDS = 5


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with settled_world(spark, tmp_path_factory.mktemp("isolation")) as made:
        yield made


@pytest.mark.parametrize("fault", [Fault.SILENT, Fault.DRIPPING, Fault.GONE], ids=lambda fault: fault.value)
def test_a_master_that_fails(world: World, fault: Fault) -> None:
    for _ in range(ROUNDS):
        with world.watched(FAULT_S, bound_s=world.quiet_s + MORE_S):
            for link in (world.ha, world.remoting):
                link.meet(fault)
            world.write("linked", 20)
        for link in (world.ha, world.remoting):
            link.meet(Fault.NONE)
        world.assert_equal("rocketmq/linked")
