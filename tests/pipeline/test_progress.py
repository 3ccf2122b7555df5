"""What follows from a progress's facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.monitoring.progress import PartitionProgress, of_job
from sources.errors import LogtwinError, MasterUnreachable
from sources.master import SessionState
from sources.offsets import Offset
from tests.pipeline.sample_progress import PROGRESS, TOPIC_PROGRESS


@pytest.mark.parametrize(
    ("position", "minimum", "maximum", "lag_bytes"),
    [
        (500, 0, 900, 400),
        (900, 0, 900, 0),
        (950, 0, 900, 0),  # the master was asked before the commit
        (None, 300, 900, 600),  # nothing is committed: all that the master holds
        (500, None, None, None),
    ],
)
def test_the_lag_is_what_the_master_has_and_the_replica_has_not(
    position: int | None, minimum: int | None, maximum: int | None, lag_bytes: int | None
) -> None:
    offsets = [None if one is None else Offset(one) for one in (position, minimum, maximum)]
    now = replace(PROGRESS, position=offsets[0], master_minimum=offsets[1], master_maximum=offsets[2])
    assert now.lag == lag_bytes


def test_a_topic_lags_by_the_sum_of_its_partitions() -> None:
    """A partition that is ahead, because its master was asked before the commit, makes up for no other one."""
    ahead = replace(TOPIC_PROGRESS.partitions[2], position=Offset(350))
    partitions = {**TOPIC_PROGRESS.partitions, 2: ahead}
    assert replace(TOPIC_PROGRESS, partitions=partitions).lag == 300
    assert replace(TOPIC_PROGRESS, partitions={**partitions, 10: PartitionProgress()}).lag is None


@pytest.mark.parametrize(
    ("failure", "said"), [(None, "no answer"), (MasterUnreachable("no connection"), "no connection")]
)
def test_the_last_error_is_that_of_the_query_or_else_of_the_session(failure: LogtwinError | None, said: str) -> None:
    session = SessionState(Offset(400), None, 0, "no answer")
    now = of_job(session=session, until_loss=None, last_failure=failure, log_id="rocketmq/a", role="slave", master="m")
    assert (now.last_error, now.acknowledged, now.until_loss_bytes) == (said, 400, None)
