"""Verbs and jobs of one replica at a master that counts connections: one at a time, and nobody else hindered."""

import os
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pipeline.monitoring import single_connection
from pipeline.monitoring.progress import Phase
from pipeline.monitoring.run_state import FRESH_S, Run, RunFile, RunState, forgotten_at, process_space
from pipeline.monitoring.single_connection import alone_at, check_alone
from sinks.state.fence import this_writer
from sources.errors import AlreadyRunning, NotAlone
from sources.offsets import LogId
from tests.patience import eventually
from tests.pipeline.test_run_state import GONE_PID, run_of
from tests.sinks.at_once import at_once
from tests.sinks.memory_master import MemoryMaster

LOG = LogId("rocketmq", "broker-a")
COUNTED_S = 0.3
LONG_S = 3600.0


class Counting(MemoryMaster):
    def counted_for_s(self) -> float | None:
        return COUNTED_S


MASTER = Counting((100,), log_id=LOG)


def word(**said: Any) -> Run:
    """Of somebody on another host, unless `space` says otherwise."""
    return run_of(now=datetime.now(UTC), **{"age_s": 0.0, "space": "elsewhere", **said})


def of_log(run: Run | None) -> RunState:
    found = None if run is None else run.of(str(LOG))
    assert found is not None
    return found


def job_file(lake: Path, run: str = "job") -> RunFile:
    return RunFile(str(lake), run)


def words(lake: Path) -> list[str]:
    return [path.name for path in (lake / "_runs").rglob("*.json")]


def reading(lake: Path, *, verb: str = "verify", take_over: bool = False) -> ExitStack:
    stack = ExitStack()
    stack.enter_context(alone_at(str(lake), MASTER, verb, take_over=take_over))
    return stack


def job_connects(lake: Path, *before: RunState, counted_s: float = COUNTED_S) -> None:
    """A job that announces itself, if it may connect."""
    writer = this_writer()
    job_file(lake, writer.run).write(replace(word(space=process_space()), writer=writer))
    check_alone(str(lake), LOG, writer.run, counted_s, before)


def test_a_master_that_counts_nothing_hears_and_leaves_nothing(tmp_path: Path) -> None:
    job_file(tmp_path).write(word())
    with alone_at(str(tmp_path), MemoryMaster((100,), log_id=LOG), "verify"):
        assert words(tmp_path) == ["job.json"]


def test_a_verb_says_that_it_reads_and_takes_it_back(tmp_path: Path) -> None:
    with reading(tmp_path):
        (path,) = (tmp_path / "_runs" / "_reading" / "rocketmq" / "broker-a").iterdir()
        said = of_log(Run.from_json(path.read_text()))
        assert (said.facts, said.phase, said.writer.pid) == ({"verb": "verify"}, Phase.RUNNING, os.getpid())
    assert words(tmp_path) == []


def test_a_long_verb_renews_its_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_connection, "PUBLISH_EVERY_S", 0.01)

    def said_at() -> datetime:
        (path,) = (tmp_path / "_runs" / "_reading" / "rocketmq" / "broker-a").glob("[!.]*")
        return of_log(Run.from_json(path.read_text())).updated_at

    with reading(tmp_path):
        first = said_at()
        assert eventually(lambda: said_at() > first)


def test_a_verb_beside_a_live_job_is_refused_and_leaves_no_word(tmp_path: Path) -> None:
    job_file(tmp_path).write(word())
    with pytest.raises(AlreadyRunning, match=r"rocketmq/broker-a.*counts connections") as caught:
        reading(tmp_path)
    assert "host-1" in str(caught.value.found)
    assert "--path" in str(caught.value.hint)
    assert words(tmp_path) == ["job.json"]
    reading(tmp_path, verb="repair", take_over=True).close()  # which does not ask for the job


def test_of_two_verbs_one_is_refused(tmp_path: Path) -> None:
    with reading(tmp_path, verb="backfill"), pytest.raises(AlreadyRunning, match="logtwin backfill has one"):
        reading(tmp_path)
    reading(tmp_path).close()


def test_a_job_waits_for_the_verb_that_it_names(tmp_path: Path) -> None:
    with reading(tmp_path):
        with pytest.raises(NotAlone, match="rocketmq/broker-a") as caught:
            job_connects(tmp_path)
        assert caught.value.is_transient
        assert "logtwin verify" in str(caught.value.found)
        assert f"process {os.getpid()} on" in str(caught.value.found)
    job_connects(tmp_path)


def test_of_a_verb_and_a_job_that_begin_at_once_not_both_go_on(tmp_path: Path) -> None:
    """Each has written its word before it reads; whoever comes to read second finds the other's."""
    for number in range(20):
        lake, went_on = tmp_path / str(number), list[str]()

        def verb(lake: Path = lake, went_on: list[str] = went_on) -> None:
            with reading(lake):
                went_on.append("verb")
                eventually(lambda: len(went_on) == 2, 0.05)

        def job(lake: Path = lake, went_on: list[str] = went_on) -> None:
            job_connects(lake)
            went_on.append("job")

        with suppress(AlreadyRunning, NotAlone):
            at_once([verb, job])
        assert len(went_on) < 2


@pytest.mark.parametrize(
    ("said", "forgotten_after_s"),
    [
        (word(phase=Phase.DONE), 0),
        (word(phase=Phase.STOPPED), 0),
        (word(phase=Phase.FAILED), 20),  # its tasks may linger
        (word(phase=Phase.RUNNING), FRESH_S + 20),  # killed at some time before it was to speak again
        (word(space=process_space(), pid=GONE_PID), 0),  # the system has ended its connections
        (word(space=process_space()), FRESH_S + 20),
    ],
)
def test_when_a_run_is_counted_no_more(said: Run, forgotten_after_s: float) -> None:
    assert forgotten_at(of_log(said), 20.0) - said.updated_at == timedelta(seconds=forgotten_after_s)


def test_after_a_verb_that_failed_its_connections_are_waited_out(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(ZeroDivisionError), reading(tmp_path):
        raise ZeroDivisionError
    with pytest.raises(NotAlone, match="another one of this replica"):
        job_connects(tmp_path, counted_s=LONG_S)
    for path in (tmp_path / "_runs").glob("*.json"):
        path.unlink()
    reading(tmp_path, verb="backfill").close()
    assert time.monotonic() - began > COUNTED_S - 0.1
    assert words(tmp_path) == []  # what is past is tidied away


def test_a_job_waits_for_the_one_before_it_that_was_killed_elsewhere(tmp_path: Path) -> None:
    killed = of_log(word(age_s=FRESH_S))
    older = of_log(word(age_s=2 * FRESH_S))
    with pytest.raises(NotAlone, match="another one") as caught:
        job_connects(tmp_path, older, killed, counted_s=LONG_S)
    assert "the job before" in str(caught.value.found)
    time.sleep(COUNTED_S)
    job_connects(tmp_path, older, killed)


def test_a_job_whose_word_is_not_there_does_not_connect(tmp_path: Path) -> None:
    for said in (None, word(), replace(word(), logs={})):
        if said is not None:
            job_file(tmp_path, "mine" if not said.logs else "another").write(said)
        with pytest.raises(NotAlone, match="nobody can see"):
            check_alone(str(tmp_path), LOG, "mine", COUNTED_S, ())


def test_a_verb_that_cannot_write_its_word_does_not_connect(tmp_path: Path) -> None:
    (tmp_path / "_runs").write_text("a file where a folder should be")
    with pytest.raises(NotAlone, match="nobody can tell"):
        reading(tmp_path)


@pytest.mark.parametrize("take_over", [False, True], ids=["its job", "other verbs"])
def test_a_verb_that_cannot_read_who_else_reads_does_not_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, take_over: bool
) -> None:
    monkeypatch.setattr(RunFile, "read", Mock(side_effect=OSError("unreadable")))
    with pytest.raises(NotAlone, match=r"rocketmq/broker-a: nobody can tell.*found unreadable"):
        reading(tmp_path, take_over=take_over)
    assert words(tmp_path) == []


def test_a_word_that_cannot_be_renewed_is_told_and_the_verb_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(single_connection, "PUBLISH_EVERY_S", 0.01)
    with reading(tmp_path):
        monkeypatch.setattr(RunFile, "write", Mock(side_effect=OSError("no space left")))
        assert eventually(lambda: "cannot see that logtwin verify reads: no space left" in caplog.text)
