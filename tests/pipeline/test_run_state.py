"""The file that says who replicates a log: written, read, believed for a while, and never needed."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.monitoring import run_state
from pipeline.monitoring.progress import ENDED, Phase, Progress
from pipeline.monitoring.run_state import FRESH_S, Publisher, RunFile, RunState, check_free, is_gone, process_space
from sinks.state.fence import this_writer
from sources.errors import AlreadyRunning, TakenOver
from tests.log_lines import said_by
from tests.patience import PATIENCE_S, eventually
from tests.pipeline.sample_progress import NOW, PROGRESS

LOG = "rocketmq/broker-a"


# No process has it: Linux gives numbers below 2^22. That of a child that ended may be given to another within the run.
GONE_PID = 2**22


def state(
    *, phase: Phase = Phase.RUNNING, age_s: float = 3, pid: int | None = None, space: str | None = None,
    now: datetime = NOW,
) -> RunState:  # fmt: skip
    """Of this process and host, unless told otherwise."""
    writer = replace(this_writer(), run="the-other-run", host="host-1")
    return RunState(
        writer=writer if pid is None else replace(writer, pid=pid),
        process_space=process_space() if space is None else space,
        updated_at=now - timedelta(seconds=age_s),
        phase=phase,
        facts={"position": 500},
    )


def test_the_file_is_where_a_reader_looks_and_says_what_the_status_shows(tmp_path: Path) -> None:
    mine = Run(tmp_path)
    mine.enter()
    found = json.loads((tmp_path / "_runs" / "rocketmq" / "broker-a.json").read_text())
    assert found["host"] == socket.gethostname()
    assert found["pid"] == os.getpid()
    assert found["phase"] == "running"
    assert (found["received"], found["position"], found["acknowledged"]) == (600, 500, 400)
    assert (found["lag_bytes"], found["lag_s"]) == (400, 1.5)
    assert (found["until_loss_bytes"], found["until_loss_s"]) == (7000, 86_400)
    assert (found["connected_since"], found["reconnects"]) == ("2026-11-21T14:02:11+00:00", 2)
    assert (found["role"], found["master"], found["master_role"]) == ("slave", "10.0.0.5:10912", "SYNC_MASTER")
    assert found["last_error"] == "it broke"
    assert found["partitions"] == []
    mine.end()


@pytest.mark.parametrize("uri", [False, True], ids=["path", "uri"])
def test_a_write_replaces_what_was_there(tmp_path: Path, uri: bool) -> None:
    warehouse = tmp_path / "lake ä"
    file = RunFile(f"file://{warehouse}" if uri else str(warehouse), LOG)
    assert file.read() is None
    file.write(state())
    file.write(state(phase=Phase.DONE))
    found = file.read()
    assert found is not None
    assert found.phase is Phase.DONE
    assert [path.name for path in warehouse.rglob("*") if path.is_file()] == ["broker-a.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "{}", '{"run": "x", "phase": "dancing"}'])
def test_what_cannot_be_understood_says_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "_runs" / "rocketmq" / "broker-a.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert RunFile(str(tmp_path), LOG).read() is None


def test_a_place_that_cannot_be_reached_is_an_oserror() -> None:
    file = RunFile("gopher://nowhere/lake", LOG)
    with pytest.raises(OSError, match="gopher"):
        file.read()
    with pytest.raises(OSError, match="gopher"):
        file.write(state())


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


def test_a_refusal_for_another_hosts_sake_says_how_long_to_wait() -> None:
    with pytest.raises(AlreadyRunning, match=r"if that process is dead, start again in 11 s"):
        check_free(state(age_s=4, space="another host"), LOG, NOW)


class Run:
    def __init__(self, warehouse: Path, name: str = "mine", now: Progress = PROGRESS) -> None:
        self.now = now
        writer = replace(this_writer(), run=name)
        self.publisher = Publisher(RunFile(str(warehouse), LOG), LOG, writer, self.progress)

    def progress(self) -> Progress:
        return self.now

    def enter(self, *, take_over: bool = False) -> None:
        self.publisher.enter(take_over=take_over)

    def end(self, phase: Phase = Phase.STOPPED) -> None:
        self.now = replace(self.now, phase=phase)
        self.publisher.join()


def on_disk(warehouse: Path) -> RunState:
    found = RunFile(str(warehouse), LOG).read()
    assert found is not None
    return found


def test_a_run_is_there_from_its_start_at_each_change_and_at_its_end(tmp_path: Path) -> None:
    mine = Run(tmp_path, now=replace(PROGRESS, phase=Phase.STARTING))
    mine.enter()
    assert on_disk(tmp_path).phase is Phase.STARTING
    mine.now = replace(mine.now, phase=Phase.RUNNING)
    mine.publisher.changed()
    assert eventually(lambda: on_disk(tmp_path).phase is Phase.RUNNING)
    mine.end()
    assert on_disk(tmp_path).phase is Phase.STOPPED
    assert not on_disk(tmp_path).is_live(datetime.now(UTC))


def test_a_second_run_is_refused_and_leaves_the_first_ones_word(tmp_path: Path) -> None:
    first, second, third = (Run(tmp_path, name) for name in ("first", "second", "third"))
    first.enter()
    with pytest.raises(AlreadyRunning, match="first"):
        second.enter()
    second.publisher.join()
    assert on_disk(tmp_path).writer.run == "first"
    first.end()
    third.enter()
    assert on_disk(tmp_path).writer.run == "third"
    third.end()


def test_a_run_that_is_taken_over_gives_way(tmp_path: Path) -> None:
    """Before it has noticed, when it has, and when it ends."""
    old, new = Run(tmp_path, "old"), Run(tmp_path, "new")
    old.enter()
    new.enter(take_over=True)
    old.publisher.changed()
    old.now = replace(PROGRESS, error=TakenOver("another job writes this log"))
    old.end(Phase.FAILED)
    assert on_disk(tmp_path).writer.run == "new"
    new.end()
    assert (on_disk(tmp_path).writer.run, on_disk(tmp_path).phase) == ("new", Phase.STOPPED)


def test_a_run_that_took_over_overwrites_a_late_word_of_the_other(tmp_path: Path) -> None:
    old, new = Run(tmp_path, "old"), Run(tmp_path, "new")
    old.enter()
    said = on_disk(tmp_path)
    new.enter(take_over=True)
    RunFile(str(tmp_path), LOG).write(replace(said, updated_at=datetime.now(UTC)))  # it was just about to
    new.publisher.changed()
    assert eventually(lambda: on_disk(tmp_path).writer.run == "new")
    new.enter()  # a start that is tried again
    new.end()
    old.end()


def test_a_run_that_learns_late_that_it_was_taken_over_keeps_nobody_out(tmp_path: Path) -> None:
    """Who took the log over came and went meanwhile, and the word of the old run is there again."""
    old, new, third = (Run(tmp_path, name) for name in ("old", "new", "third"))
    old.enter()
    new.enter(take_over=True)
    new.end(Phase.DONE)
    old.publisher.changed()
    assert eventually(lambda: on_disk(tmp_path).writer.run == "old")
    old.now = replace(PROGRESS, error=TakenOver("another job writes this log"))
    old.end(Phase.FAILED)
    assert not on_disk(tmp_path).is_live(datetime.now(UTC))
    third.enter()
    third.end()


def test_any_error_of_publishing_is_logged_once_and_passes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were its thread to end, others would take the job for dead after a while, and begin another one."""
    monkeypatch.setattr(run_state, "PUBLISH_EVERY_S", 0.01)
    failing = threading.Event()
    failed = threading.Semaphore(0)

    class Failing(Run):
        def progress(self) -> Progress:
            if failing.is_set():
                failed.release()
                raise ZeroDivisionError("nobody thought of it")
            return super().progress()

    mine = Failing(tmp_path)
    mine.enter()
    with caplog.at_level(logging.WARNING):
        failing.set()
        for _ in range(3):
            assert failed.acquire(timeout=PATIENCE_S)
        failing.clear()
        since = datetime.now(UTC)
        assert eventually(lambda: on_disk(tmp_path).updated_at > since)
        mine.end()
    assert ["nobody thought of it" in said for said in said_by(run_state.__name__, caplog)] == [True]


def test_a_folder_that_takes_nothing_is_said_once_and_hinders_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_state, "PUBLISH_EVERY_S", 0.01)
    (tmp_path / "_runs").write_text("a file where a folder should be")
    asked = threading.Semaphore(0)

    class Counting(Run):
        def progress(self) -> Progress:
            asked.release()
            return super().progress()

    mine = Counting(tmp_path)
    with caplog.at_level(logging.WARNING):
        mine.enter()
        for _ in range(5):
            assert asked.acquire(timeout=PATIENCE_S)
        mine.end()
    assert [LOG in said for said in said_by(run_state.__name__, caplog)] == [True]
