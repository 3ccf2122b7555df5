"""A job whose master has become another log: it is promised nothing, and what was found is on record once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from pipeline.job.replicate import Job
from pipeline.monitoring.progress import Phase
from sinks.values.incident import Action
from sources.datasource import register
from sources.errors import AboveMaximum, Rewritten
from sources.loss import Condition
from sources.offsets import Offset
from tests.pipeline.faulty_link import Fault, Link
from tests.pipeline.masters import Served
from tests.pipeline.repair_bench import Bench, replicate_in_process
from tests.pipeline.running import job_config, run_until
from tests.sources.rocketmq.embedded.embedded import master_and_loop, settings_for

pytestmark = pytest.mark.spark


@pytest.fixture
def served(bench: Bench) -> Iterator[Served]:
    with master_and_loop(settings_for(bench.log.root)) as (master, loop):
        yield Served(master, loop)


def test_a_shorter_master_is_promised_nothing(bench: Bench, request: pytest.FixtureRequest) -> None:
    position, kept = bench.log.end, bench.log.lose_a_record()
    served: Served = request.getfixturevalue("served")
    with served.watched() as acknowledged:
        for _ in range(2):
            with pytest.raises(AboveMaximum, match="logtwin repair"):
                replicate_in_process(bench.spark, job_config(bench.lake, **served.options, on_loss="record"))
    assert max(acknowledged, default=0) <= kept
    assert bench.state().offset == position
    (row,) = bench.incidents().all()
    assert (row.found.condition, row.found.range.end) == (Condition.ABOVE_MAXIMUM, position)
    assert row.found.action is Action.REPORTED


def test_a_new_connection_to_another_log_ends_the_job(bench: Bench, served: Served) -> None:
    """Nothing is to be read and nothing to be started: only the session's connection breaks and is made anew."""
    register(bench.spark)
    end = bench.log.end
    with Link(served.master.ha_address) as link, served.watched() as acknowledged:
        options = {**served.options, "master": str(link.address)}
        with closing(Job(bench.spark, job_config(bench.lake, **options), available_now=False)) as job:
            job.start()
            run_until(job, lambda now: end in acknowledged)
            bench.log.flip(Offset(end - 1))
            link.meet(Fault.NONE)  # which breaks what was connected
            ended = run_until(job, lambda now: now.phase is Phase.FAILED)
    assert isinstance(ended.error, Rewritten)
    assert ended.incidents == {"rewritten": 1}
    assert ended.connected_since is None
