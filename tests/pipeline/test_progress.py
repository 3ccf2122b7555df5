"""What follows from a progress's facts."""

from dataclasses import replace

import pytest

from pipeline.monitoring.progress import PartitionProgress, of_job
from sources.errors import LogtwinError, MasterUnreachable
from sources.master import SessionState
from sources.offsets import Offset
from tests.pipeline.sample_progress import PROGRESS, TOPIC_PROGRESS


def test_the_lag_is_what_the_master_has_and_the_replica_has_not() -> None:
    """The master may have been asked before the commit; where nothing is committed, it is all that the master holds."""
    known = ((500, 0, 900, 400), (900, 0, 900, 0), (950, 0, 900, 0), (None, 300, 900, 600), (500, None, None, None))
    for *offsets, lag_bytes in known:
        position, minimum, maximum = (None if one is None else Offset(one) for one in offsets)
        now = replace(PROGRESS, position=position, master_minimum=minimum, master_maximum=maximum)
        assert now.lag == lag_bytes, offsets


def test_a_topic_lags_by_the_sum_of_its_partitions() -> None:
    """A partition that is ahead, because its master was asked before the commit, makes up for no other one."""
    ahead = replace(TOPIC_PROGRESS.partitions[2], position=Offset(350))
    partitions = {**TOPIC_PROGRESS.partitions, 2: ahead}
    assert replace(TOPIC_PROGRESS, partitions=partitions).lag == 300
    assert replace(TOPIC_PROGRESS, partitions={**partitions, 10: PartitionProgress()}).lag is None


@pytest.mark.parametrize(
    ("failure", "said"), [(None, "no answer"), (MasterUnreachable("no connection"), "no connection")]
)
def test_the_last_error_is_that_of_the_log_or_else_of_the_session(failure: LogtwinError | None, said: str) -> None:
    session = SessionState(Offset(400), None, 0, "no answer")
    now = of_job(session=session, until_loss=None, error=failure, log_id="rocketmq/a", role="slave", master="m")
    assert (now.last_error, now.acknowledged, now.until_loss_bytes) == (said, 400, None)
