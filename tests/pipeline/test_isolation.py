"""While a job goes on a master that fails holds up no other log. What ends one log alone: `test_logs_fail_alone.py`;
that it costs others no more than a second: `tests/soak/test_isolation.py`, on a quiet machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.faulty_link import Fault
from tests.pipeline.isolation import STEADY, World, settled_world

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def world(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with settled_world(session, tmp_path_factory.mktemp("isolation")) as made:
        yield made


@pytest.mark.parametrize("is_of_all", [True, False], ids=["everywhere", "where it sends"])
@pytest.mark.parametrize("fault", [Fault.SILENT, Fault.DRIPPING, Fault.GONE], ids=lambda fault: fault.value)
def test_a_master_that_fails_holds_up_no_other_log(world: World, fault: Fault, is_of_all: bool) -> None:
    """Where it only sends nothing it says what it holds: each batch has to find out anew."""
    with world.failing(fault, is_of_all=is_of_all):
        for log_id in STEADY:
            world.reach(log_id)
    world.reach("rocketmq/linked")
