"""Which jobs are alive, as status shows them."""

from __future__ import annotations

from dataclasses import replace

from pipeline.inspect.jobs import job_as_json, job_lines, live
from pipeline.monitoring.run_state import FRESH_S, Run
from tests.pipeline.sample_progress import NOW
from tests.pipeline.test_run_state import run_of


def job(name: str, shard: str | None, waits: int = 0) -> Run:
    held = {f"rocketmq/b{at}": "shard 1/2, run x" for at in range(waits)}
    return replace(run_of(name=name, shard=shard), waits_for=held)


def test_live_shards_are_shown_with_what_they_wait_for_and_which_are_missing() -> None:
    dead = run_of(age_s=FRESH_S + 1, name="dead", shard="2/3")
    jobs = live([job("b", "3/3", waits=5), dead, job("a", "1/3")], NOW)
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
    assert len([*job_lines(live([job("a", "1/3"), job("b", "2/2")], NOW))]) == 3
    assert [*job_lines(live([job("a", None)], NOW))] == []
