"""Several jobs in one warehouse, as ``logtwin status`` tells them: each log by the job that has it, or had it last."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.inspect import asked
from pipeline.inspect.overview import job_as_json, job_lines, live_jobs
from pipeline.monitoring.progress import PartitionProgress, Phase, Progress
from pipeline.monitoring.publisher import Publisher
from pipeline.monitoring.run_state import FRESH_S, Run
from sinks.state.fence import this_writer
from sources.offsets import Offset
from tests.patience import eventually
from tests.pipeline.job_toml import job_toml
from tests.pipeline.operator_at_work import Operator
from tests.pipeline.sample_progress import NOW, PROGRESS, TOPIC_PROGRESS
from tests.pipeline.test_run_state import run_of

TOPIC = TOPIC_PROGRESS.log_id
NOWHERE = "127.0.0.1:9"


class Job:
    """A job that has said that it runs, and replicates nothing."""

    def __init__(self, lake: Path, *logs: Progress, shard: str | None = None) -> None:
        self.writer = this_writer()
        self.publisher = Publisher(str(lake), self.writer, shard)
        self.logs = {one.log_id: one for one in logs}
        for log_id in self.logs:
            tell = partial(self.logs.__getitem__, log_id)
            self.publisher.enter(log_id, tell, take_over=shard is not None)

    def end(self) -> None:
        self.logs |= {log_id: replace(one, phase=Phase.STOPPED) for log_id, one in self.logs.items()}
        self.publisher.close()


def on(broker: str) -> Progress:
    return replace(PROGRESS, log_id=f"rocketmq/{broker}")


KILLED = """
import os, signal, sys
from dataclasses import replace
from pipeline.monitoring.publisher import Publisher
from sinks.state.fence import this_writer
from tests.pipeline.sample_progress import PROGRESS
publisher = Publisher(sys.argv[1], replace(this_writer(), run="killed"))
for log_id in ("rocketmq/b", "rocketmq/c"):
    publisher.enter(log_id, lambda: PROGRESS, take_over=False)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    found: list[Job] = []
    yield found
    for one in found:
        one.end()


def told(operator: Operator) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in json.loads(operator.must("status", "--json").out)["logs"]}


def test_each_log_is_told_by_the_job_that_has_it(operator: Operator, jobs: list[Job]) -> None:
    job_toml(operator.folder, *({"id": f"rocketmq/{at}", "master": NOWHERE, "remoting": NOWHERE} for at in "abc"))
    jobs.append(Job(operator.lake, on("a")))
    child = subprocess.run([sys.executable, "-c", KILLED, operator.lake], check=False, timeout=60)
    assert child.returncode < 0
    a, b, c = told(operator).values()
    assert (a["running"], a["phase"], a["run"], a["pid"]) == (True, "running", jobs[0].writer.run, os.getpid())
    for one in (b, c):
        assert (one["running"], one["phase"], one["run"]) == (False, "running", "killed")

    jobs.append(Job(operator.lake, on("b")))  # nobody has to wait: that process is gone
    assert {at: (one["running"], one["run"]) for at, one in told(operator).items()} == {
        "rocketmq/a": (True, jobs[0].writer.run),
        "rocketmq/b": (True, jobs[1].writer.run),
        "rocketmq/c": (False, "killed"),
    }
    jobs[0].end()
    a, b, _ = told(operator).values()
    assert (a["running"], a["phase"], b["running"]) == (False, "stopped", True)

    jobs.append(Job(operator.lake, on("a"), on("c")))
    files = {f"{one.writer.run}.json" for one in jobs[1:]}
    assert eventually(lambda: {path.name for path in (operator.lake / "_runs").glob("[!.]*")} == files)
    assert [one["running"] for one in told(operator).values()] == [True] * 3


def test_a_topic_of_two_jobs_is_told_partition_by_partition(
    operator: Operator, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked, "_TOPIC_PATIENCE_MS", 0)
    operator.job.write_text(
        f'warehouse = "{operator.lake}"\n[[topics]]\nid = "{TOPIC}"\nservers = "{NOWHERE}"\ngroup = "g"\n'
    )
    parts = {at: PartitionProgress(acknowledged=Offset(10 + at), position=Offset(10 + at)) for at in range(2)}
    for number, part in parts.items():
        one = replace(TOPIC_PROGRESS, partitions={number: part}, acknowledged=part.acknowledged)
        jobs.append(Job(operator.lake, one, shard=f"{number + 1}/2"))
    (said,) = told(operator).values()
    assert (said["running"], said["acknowledged"], said["reconnects"]) == (True, 10 + 11, 2 * 2)
    jobs[0].end()
    (said,) = told(operator).values()
    assert (said["running"], said["phase"], said["run"]) == (False, "stopped", jobs[0].writer.run)


def job(name: str, shard: str | None, waits: int = 0) -> Run:
    held = {f"rocketmq/b{at}": "shard 1/2, run x" for at in range(waits)}
    return replace(run_of(name=name, shard=shard), waits_for=held)


def test_live_shards_are_shown_with_what_they_wait_for_and_which_are_missing() -> None:
    dead = run_of(age_s=FRESH_S + 1, name="dead", shard="2/3")
    jobs = live_jobs([job("b", "3/3", waits=5), dead, job("a", "1/3")], NOW)
    assert [one.writer.run for one in jobs] == ["a", "b"]
    head, a, b, missing = job_lines(jobs)
    assert head == "jobs"
    assert a.startswith("  shard 1/3, run a (process ")
    assert a.endswith("1 logs and topics")
    assert b.endswith("waits for rocketmq/b0 (held by shard 1/2, run x), rocketmq/b1 (held by shard 1/2, run x), "
                      "rocketmq/b2 (held by shard 1/2, run x) and 2 more")  # fmt: skip
    assert missing == "  shard 2/3: no job is alive"
    told = job_as_json(jobs[1])
    assert (told["shard"], told["logs"], len(told["waits_for"])) == ("3/3", 1, 5)


def test_while_their_number_changes_none_is_missing_and_without_shards_nothing_is_said() -> None:
    assert len([*job_lines(live_jobs([job("a", "1/3"), job("b", "2/2")], NOW))]) == 3
    assert [*job_lines(live_jobs([job("a", None)], NOW))] == []
