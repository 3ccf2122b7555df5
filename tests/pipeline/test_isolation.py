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


@pytest.mark.parametrize(
    ("fault", "is_of_all"),
    [
        (Fault.SILENT, False),  # it says what it holds, and does not send it: each batch has to find out anew
        (Fault.DRIPPING, True),
        (Fault.GONE, True),
        pytest.param(Fault.SILENT, True, marks=pytest.mark.nightly),
        pytest.param(Fault.DRIPPING, False, marks=pytest.mark.nightly),
    ],
    ids=lambda one: one.value if isinstance(one, Fault) else "everywhere" if one else "where it sends",
)
def test_a_master_that_fails_holds_up_no_other_log(world: World, fault: Fault, is_of_all: bool) -> None:
    with world.failing(fault, is_of_all=is_of_all):
        for log_id in STEADY:
            world.reach(log_id)
    world.reach("rocketmq/linked")
