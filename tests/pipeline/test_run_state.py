"""What a run says: believed for a while, told by whoever has a log now, of several runs as one; and the files of it."""

import os
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.monitoring.progress import ENDED, Phase
from pipeline.monitoring.run_state import (
    FRESH_S,
    Run,
    RunFile,
    RunState,
    check_free,
    is_gone,
    process_space,
    runs_of,
    runs_seen,
    superseded,
    tellers,
    told_together,
)
from sinks.state.fence import this_writer
from sources.errors import AlreadyRunning
from tests.pipeline.sample_progress import NOW

LOG = "rocketmq/broker-a"
TOPIC = "kafka/east/orders"

# No process has it: Linux gives numbers below 2^22. That of a child that ended may be given to another within the run.
GONE_PID = 2**22


def run_of(
    *, phase: Phase = Phase.RUNNING, age_s: float = 3, pid: int | None = None, space: str | None = None,
    now: datetime = NOW, log_id: str = LOG, name: str = "the-other-run", shard: str | None = None, begun: int = 0,
    **facts: Any,
) -> Run:  # fmt: skip
    """Of this process and host, unless told otherwise. It has `log_id`, since `begun` s after NOW."""
    writer = replace(this_writer(), run=name, host="host-1", since=NOW.isoformat())
    said = {"phase": phase.value, "begun_at": (NOW + timedelta(seconds=begun)).isoformat(), "position": 500, **facts}
    return Run(
        writer=writer if pid is None else replace(writer, pid=pid),
        process_space=process_space() if space is None else space,
        updated_at=now - timedelta(seconds=age_s),
        shard=shard,
        logs={log_id: said},
    )


def state(**said: Any) -> RunState:
    """Of `run_of`."""
    run = run_of(**said)
    (found,) = (run.of(log_id) for log_id in run.logs)
    assert found is not None
    return found


def test_what_a_run_says_is_read_as_it_was_written() -> None:
    said = run_of(shard="2/8", partitions=[{"partition": 3, "position": 7}])
    assert Run.from_json(said.as_json()) == said
    assert Run.from_json(said.as_json().replace('"shard"', '"of a later version": 7, "shard"')) == said


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", '"x"', "{}", '{"run": "x", "phase": "dancing"}'),
        run_of().as_json().replace("running", "dancing"),
        run_of().as_json().replace("begun_at", "started"),
        run_of().as_json().replace("process_space", "space"),
        run_of().as_json().replace('"logs": {', '"logs": 0, "x": {'),
    ],
)
def test_what_cannot_be_understood_says_nothing(text: str) -> None:
    with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
        Run.from_json(text)


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING, Phase.WAITING])
@pytest.mark.parametrize("age_s", [-FRESH_S, 0, 5, FRESH_S])
def test_a_run_that_spoke_lately_is_live(phase: Phase, age_s: float) -> None:
    assert state(phase=phase, age_s=age_s).is_live(NOW)
    assert state(phase=phase, age_s=age_s, space="elsewhere", pid=GONE_PID).is_live(NOW)


@pytest.mark.parametrize(
    "dead",
    [
        *(state(phase=phase) for phase in Phase if phase in ENDED),
        state(age_s=FRESH_S + 0.1),
        state(age_s=3600),
        state(age_s=-FRESH_S - 0.1),  # a clock that was set back must not keep a log for ever
        state(pid=GONE_PID, age_s=0),  # of this host
    ],
    ids=lambda one: f"{one.phase.value} {one.age_s(NOW):g} s",
)
def test_a_run_that_ended_or_fell_silent_is_not_live(dead: RunState) -> None:
    assert not dead.is_live(NOW)
    check_free(dead, LOG, NOW)


def test_a_run_outlives_its_logs_and_no_log_outlives_its_run() -> None:
    ended = run_of(phase=Phase.FAILED, ended_at=(NOW - timedelta(seconds=60)).isoformat())
    said = ended.of(LOG)
    assert said is not None
    assert (ended.is_live(NOW), said.is_live(NOW), said.age_s(NOW)) == (True, False, 60)
    over = replace(run_of(), has_ended=True)
    assert (over.is_live(NOW), tellers([over], LOG, NOW)[0].is_live(NOW)) == (False, False)


def test_a_process_that_only_waits_to_be_reaped_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        assert not is_gone(child.pid)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is a zombie until it is reaped
        assert is_gone(child.pid)
    assert not is_gone(os.getpid())


def test_a_refusal_names_the_other_run_and_says_what_to_do() -> None:
    found = state(age_s=4)
    with pytest.raises(AlreadyRunning) as caught:
        check_free(found, LOG, NOW)
    text = str(caught.value)
    for named in (LOG, "the-other-run", str(os.getpid()), "host-1", found.writer.since, "running", "--take-over"):
        assert named in text
    assert "start again" not in text  # that process lives: waiting does not help
    with pytest.raises(AlreadyRunning, match=r"if that process is dead, start again in 11 s"):
        check_free(state(age_s=4, space="another host"), LOG, NOW)


DEAD_S = FRESH_S + 1


def dealt(name: str, *numbers: int, shard: str | None = "1/2", **said: Any) -> Run:
    """A run that has partitions of a topic."""
    parts = [{"partition": at, "position": 100 * at, "acknowledged": 10 * at} for at in numbers]
    return run_of(
        name=name, shard=shard, log_id=TOPIC, partitions=parts, received=sum(numbers), reconnects=1, lag_s=1.0, **said
    )


@pytest.mark.parametrize(
    ("runs", "log_id", "told"),
    [
        ([], LOG, ""),
        ([run_of(name="a", log_id="rocketmq/another")], LOG, ""),
        ([run_of(name="a", age_s=DEAD_S, begun=2), run_of(name="b", age_s=DEAD_S, begun=1)], LOG, "a"),
        ([run_of(name="a", age_s=DEAD_S, begun=2), run_of(name="b", begun=1)], LOG, "b"),
        ([run_of(name="a", phase=Phase.FAILED, begun=2), run_of(name="b", begun=1)], LOG, "b"),
        ([run_of(name="a", begun=1), run_of(name="b", begun=2)], LOG, "b"),  # a does not know yet that it lost it
        ([run_of(name="a", shard="1/2", begun=1), run_of(name="b", shard="1/3", begun=2)], LOG, "b"),
        ([dealt("a", 0, 2), dealt("b", 1, 3, begun=1)], TOPIC, "ba"),
        ([dealt("a", 0, 2), dealt("b", 1, 3, begun=1, age_s=DEAD_S)], TOPIC, "ab"),
        ([dealt("a", 0, 1, 2, 3), dealt("b", 1, 3, begun=-1, age_s=DEAD_S)], TOPIC, "a"),
        ([dealt("a", 0, 2), dealt("b", 0, 1), dealt("c", 2, 3)], TOPIC, "abc"),
        ([dealt("a", 0, 9, age_s=DEAD_S), dealt("b", 0, 1, shard=None)], TOPIC, "b"),  # 9 is no more
        ([dealt("a", 0), dealt("b", 1, shard=None, begun=1, age_s=DEAD_S)], TOPIC, "ab"),
        ([dealt("a", 0, 1), dealt("b", begun=1)], TOPIC, "a"),  # b has none of the topic
        ([dealt("b", begun=1), dealt("a")], TOPIC, "b"),
    ],
)
def test_who_tells_a_log(runs: list[Run], log_id: str, told: str) -> None:
    assert [one.writer.run for one in tellers(runs, log_id, NOW)] == list(told)


def test_a_topic_of_several_runs_is_told_as_one() -> None:
    runs = [dealt("a", 0, 2), dealt("b", 1, 3, begun=1, phase=Phase.WAITING, last_error="away")]
    told = told_together(runs, TOPIC, NOW)
    assert told is not None
    assert (told.writer.run, told.phase, told.is_live(NOW)) == ("b", Phase.WAITING, True)
    assert [one["position"] for one in told.facts["partitions"]] == [0, 100, 200, 300]
    said = ("received", "reconnects", "acknowledged", "lag_s", "connected_since", "last_error")
    assert [told.facts.get(key) for key in said] == [6, 2, None, 1.0, None, "away"]
    killed = told_together([runs[0], replace(runs[1], updated_at=NOW - timedelta(seconds=DEAD_S))], TOPIC, NOW)
    assert killed is not None
    assert (killed.writer.run, killed.is_live(NOW)) == ("b", False)  # some of the topic is replicated by nobody


@pytest.mark.parametrize(
    ("runs", "gone"),
    [
        ([run_of(name="a", age_s=DEAD_S)], ""),
        ([run_of(name="a", age_s=DEAD_S), run_of(name="b", begun=1)], "a"),
        ([run_of(name="a", age_s=DEAD_S), run_of(name="b", begun=1, phase=Phase.DONE, age_s=DEAD_S)], "a"),
        ([run_of(name="a"), run_of(name="b", begun=1)], ""),  # both say that they live
        ([run_of(name="a", age_s=DEAD_S), run_of(name="b", log_id="rocketmq/another")], ""),
        ([dealt("a", 0, 1, age_s=DEAD_S), dealt("b", 1, begun=1)], ""),
        ([dealt("a", 0, 1, age_s=DEAD_S), dealt("b", 1, begun=1), dealt("c", 0, begun=1)], "a"),
        ([replace(run_of(name="a", age_s=DEAD_S), logs={})], "a"),
        ([replace(run_of(name="a"), logs={})], ""),
    ],
)
def test_what_others_tell_can_go(runs: list[Run], gone: str) -> None:
    assert [one.writer.run for one in superseded(runs, NOW)] == list(gone)


@pytest.mark.parametrize("uri", [False, True], ids=["path", "uri"])
def test_a_write_replaces_what_was_there(tmp_path: Path, uri: bool) -> None:
    warehouse = tmp_path / "lake ä"
    file = RunFile(f"file://{warehouse}" if uri else str(warehouse), "mine")
    assert file.read() is None
    file.write(run_of())
    file.write(run_of(phase=Phase.DONE))
    assert file.read() == run_of(phase=Phase.DONE)
    assert [path for path in warehouse.rglob("*") if path.is_file()] == [warehouse / "_runs/mine.json"]


def test_runs_are_those_of_jobs_and_what_cannot_be_understood_is_left_out(tmp_path: Path) -> None:
    assert runs_of(str(tmp_path)) == []
    for name in ("a", "b"):
        RunFile(str(tmp_path), name).write(run_of(name=name))
    RunFile(str(tmp_path), "verify", "_reading/rocketmq/broker-a").write(run_of(name="verify"))
    (tmp_path / "_runs/rocketmq").mkdir()
    (tmp_path / "_runs/rocketmq/broker-a.json").write_text('{"run": "of an older version"}')
    (tmp_path / "_runs/c.json").write_text("{")
    assert {one.writer.run for one in runs_of(str(tmp_path))} == {"a", "b"}


def test_a_place_that_cannot_be_reached_is_an_oserror(caplog: pytest.LogCaptureFixture) -> None:
    file = RunFile("gopher://nowhere/lake", "mine")
    with pytest.raises(OSError, match="gopher"):
        file.read()
    with pytest.raises(OSError, match="gopher"):
        file.write(run_of())
    assert runs_seen("gopher://nowhere/lake") == []
    assert "cannot see which jobs run" in caplog.text
