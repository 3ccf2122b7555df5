"""A run says that it lives: from its start, at each change, to its end; and it gives way to nobody by accident."""

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from pipeline.monitoring import publisher
from pipeline.monitoring.progress import PartitionProgress, Phase, Progress
from pipeline.monitoring.publisher import Publisher
from pipeline.monitoring.run_state import FRESH_S, Run, RunFile, RunState, runs_of, tellers
from sinks.state.fence import this_writer
from sources.errors import AlreadyRunning, TakenOver
from sources.offsets import LogId
from tests.around import at_each
from tests.log_lines import said_by
from tests.patience import eventually
from tests.pipeline.sample_progress import PROGRESS
from tests.pipeline.test_run_state import LOG, run_of

OTHER = "rocketmq/broker-b"


@pytest.fixture(autouse=True)
def _looking_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "LOOK_AGAIN_S", 0.0)


class Job:
    """A run with one log, or more."""

    def __init__(self, warehouse: Path, name: str = "mine", now: Progress = PROGRESS, shard: str | None = None) -> None:
        self.now = now
        self.publisher = Publisher(str(warehouse), replace(this_writer(), run=name), shard)

    def progress(self) -> Progress:
        return self.now

    def enter(self, log_id: str = LOG, *, take_over: bool = False) -> list[str]:
        """The names of the runs that had the log before."""
        before = self.publisher.enter(log_id, self.progress, take_over=take_over)
        return [one.writer.run for one in before]

    def end(self, phase: Phase = Phase.STOPPED) -> None:
        self.now = replace(self.now, phase=phase)
        self.publisher.close()


def on_disk(warehouse: Path, name: str = "mine") -> Run:
    found = RunFile(str(warehouse), name).read()
    assert found is not None
    return found


def said(warehouse: Path, name: str = "mine", log_id: str = LOG) -> RunState:
    found = on_disk(warehouse, name).of(log_id)
    assert found is not None
    return found


def teller(warehouse: Path) -> tuple[str, Phase]:
    found = tellers(runs_of(str(warehouse)), LOG, datetime.now(UTC))[0]
    return found.writer.run, found.phase


def test_a_run_is_there_from_its_start_at_each_change_and_at_its_end(tmp_path: Path) -> None:
    mine = Job(tmp_path, now=replace(PROGRESS, phase=Phase.STARTING))
    mine.enter()
    assert said(tmp_path).phase is Phase.STARTING
    mine.now = replace(mine.now, phase=Phase.RUNNING)
    mine.publisher.changed(LOG)
    assert eventually(lambda: said(tmp_path).phase is Phase.RUNNING)
    mine.end()
    assert (said(tmp_path).phase, on_disk(tmp_path).has_ended) == (Phase.STOPPED, True)
    assert not on_disk(tmp_path).is_live(datetime.now(UTC))
    mine.end()
    mine.enter(OTHER)  # by a thread that comes too late: nobody writes it any more
    assert list(on_disk(tmp_path).logs) == [LOG]


def test_a_log_that_ends_before_its_job_keeps_its_last_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "PUBLISH_EVERY_S", 0.01)
    mine = Job(tmp_path)
    mine.enter()
    ended = replace(PROGRESS, phase=Phase.FAILED)
    mine.publisher.enter(OTHER, lambda: ended, take_over=False)
    first = said(tmp_path, log_id=OTHER)
    assert eventually(lambda: on_disk(tmp_path).updated_at > first.run.updated_at)
    ended = PROGRESS
    assert eventually(lambda: on_disk(tmp_path).updated_at > first.run.updated_at)
    last = said(tmp_path, log_id=OTHER)
    assert (last.phase, last.updated_at) == (Phase.FAILED, first.updated_at)
    assert said(tmp_path).updated_at == on_disk(tmp_path).updated_at
    mine.end()


def test_many_logs_are_entered_with_few_writes_and_said_anew_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "LOOK_AGAIN_S", 60.0)
    writes: list[Run] = []
    told: list[str] = []
    at_each(monkeypatch, RunFile, "write", lambda _, run: writes.append(run))
    at_each(monkeypatch, Progress, "as_json", lambda one, _: told.append(one.log_id))
    ids = [f"rocketmq/{at}" for at in range(300)]
    mine = Job(tmp_path)
    with ThreadPoolExecutor(64) as pool:
        for _ in pool.map(mine.enter, ids):
            pass
    assert set(on_disk(tmp_path).logs) == set(ids)
    assert len(writes) < len(ids) / 2
    told.clear()
    mine.publisher._entries[ids[7]].progress = lambda: replace(PROGRESS, log_id=ids[7], phase=Phase.WAITING)
    mine.publisher.changed(ids[7])
    assert eventually(lambda: said(tmp_path, log_id=ids[7]).phase is Phase.WAITING)
    assert told == [ids[7]]
    mine.end()


def test_a_second_run_is_refused_and_leaves_no_word(tmp_path: Path) -> None:
    first, second, third = (Job(tmp_path, name) for name in ("first", "second", "third"))
    first.enter()
    with pytest.raises(AlreadyRunning, match="first"):
        second.enter()
    second.enter(OTHER)  # which nobody has
    second.end()
    assert list(on_disk(tmp_path, "second").logs) == [OTHER]
    first.end()
    third.enter()
    assert teller(tmp_path) == ("third", Phase.RUNNING)
    third.end()


def test_a_run_that_is_taken_over_gives_way(tmp_path: Path) -> None:
    """Before it has noticed, when it has, and when both have ended."""
    old, new, third = (Job(tmp_path, name) for name in ("old", "new", "third"))
    old.enter()
    assert new.enter(take_over=True) == []
    assert teller(tmp_path)[0] == "new"
    assert new.enter() == []  # a start that is tried again, and still knows whom it took the log from
    old.now = replace(PROGRESS, error=TakenOver("another job writes this log"))
    new.end()
    with pytest.raises(AlreadyRunning, match="old"):
        third.enter()  # it has not noticed yet
    old.end(Phase.FAILED)
    assert teller(tmp_path) == ("new", Phase.STOPPED)
    assert sorted(third.enter()) == ["new", "old"]
    third.end()


def test_a_start_that_is_tried_again_does_not_take_the_log_back(tmp_path: Path) -> None:
    """It waited for its master, and another run took over what it had never claimed."""
    mine, other = Job(tmp_path, now=replace(PROGRESS, phase=Phase.WAITING)), Job(tmp_path, "other")
    mine.enter()
    other.enter(take_over=True)
    with pytest.raises(AlreadyRunning, match="other"):
        mine.enter()
    mine.end()
    other.end()


def test_a_run_knows_the_word_of_those_before_it_and_tidies_up(tmp_path: Path) -> None:
    """Also when it starts again, though their files are gone by then."""
    now = datetime.now(UTC)
    for name in ("a", "b"):
        RunFile(str(tmp_path), name).write(run_of(name=name, now=now, age_s=FRESH_S + 1, begun=-60))
    (later := tmp_path / "_runs/later.json").write_text("{}")  # whatever it says to whom
    mine = Job(tmp_path)
    assert sorted(mine.enter()) == ["a", "b"]
    assert eventually(lambda: [one.writer.run for one in runs_of(str(tmp_path))] == ["mine"])
    assert sorted(mine.enter()) == ["a", "b"]
    assert later.exists()
    mine.end()


def test_any_error_of_publishing_is_logged_once_and_passes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were its thread to end, others would take the job for dead after a while, and begin another one."""
    monkeypatch.setattr(publisher, "PUBLISH_EVERY_S", 0.01)
    mine, progress = Job(tmp_path), Mock(return_value=PROGRESS)
    mine.publisher.enter(LOG, progress, take_over=False)
    with caplog.at_level(logging.WARNING):
        progress.side_effect, before, since = (
            ZeroDivisionError("nobody thought of it"),
            progress.call_count,
            datetime.now(UTC),
        )
        assert eventually(lambda: progress.call_count > before + 3)
        assert eventually(lambda: on_disk(tmp_path).updated_at > since)  # the run lives, and says what it said before
        assert said(tmp_path).facts["position"] == PROGRESS.position
        progress.side_effect = None
        mine.end()
    assert ["nobody thought of it" in one and LOG in one for one in said_by(publisher.__name__, caplog)] == [True]


@pytest.mark.parametrize("defect", [False, True])
def test_a_folder_that_takes_nothing_is_said_once_and_hinders_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, defect: bool
) -> None:
    monkeypatch.setattr(publisher, "PUBLISH_EVERY_S", 0.01)
    (tmp_path / "_runs").write_text("a file where a folder should be")
    if defect:
        monkeypatch.setattr(RunFile, "write", Mock(side_effect=TypeError("nobody thought of it")))
    mine, progress = Job(tmp_path), Mock(return_value=PROGRESS)
    with caplog.at_level(logging.WARNING):
        mine.publisher.enter(LOG, progress, take_over=False)
        assert eventually(lambda: progress.call_count >= 5)
        mine.end()
    assert ["others cannot see" in one for one in said_by(publisher.__name__, caplog)] == [True]


def test_shards_share_a_topic_and_see_who_has_which_partition(tmp_path: Path) -> None:
    topic, parts = "kafka/c/t", [LogId("kafka", f"c/t/{at}") for at in range(4)]

    def of(name: str, shard: str | None, *numbers: int) -> Job:
        now = replace(PROGRESS, log_id=topic, partitions=dict.fromkeys(numbers, PartitionProgress()))
        return Job(tmp_path, name, now, shard)

    jobs = [of("a", "1/2", 0, 2), of("b", "2/2", 1), of("c", "2/3", 2)]
    for one in jobs:
        assert list(one.publisher.enter(topic, one.progress, take_over=False, is_shared=True)) == []
    a, c = jobs[0].publisher, jobs[2].publisher
    assert c.held_by_others(topic, parts).keys() == {parts[0], parts[1], parts[2]}
    assert "shard 2/2, run b (process" in c.held_by_others(topic, parts)[parts[1]]
    jobs[1].end()
    assert c.held_by_others(topic, parts).keys() == {parts[0], parts[2]}
    a.leave(topic)
    assert eventually(lambda: topic not in on_disk(tmp_path, "a").logs)
    assert c.held_by_others(topic, parts) == {}
    whole = of("whole", None)
    with pytest.raises(AlreadyRunning, match="shard 2/3, run c"):
        whole.publisher.enter(topic, whole.progress, take_over=False)
    whole.publisher.enter(topic, whole.progress, take_over=True)
    assert a.held_by_others(topic, parts).keys() == {*parts}
    assert a.enter(topic, jobs[0].progress, take_over=True, is_shared=True) == []
    assert a.held_by_others(topic, parts) == {}  # from these it has taken them
    for one in (*jobs, whole):
        one.end()
