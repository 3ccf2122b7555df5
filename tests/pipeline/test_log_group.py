"""The group of a job's logs, without Spark: what it tells the planner, and whom a query's end concerns."""

import errno
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from pipeline.job import log_group
from pipeline.job.log_group import LogGroup
from pipeline.job.replication import Replication
from pipeline.monitoring.progress import Phase
from sinks.batch.group import Outcome
from sinks.batch.proof import BatchResult
from sinks.tables import LOG
from sources.errors import LogtwinError, MasterSilent, ReplicaError, StorageUnreachable
from sources.group import masters, standing
from sources.group.masters import MastersFile
from sources.group.offsets import GroupOffset
from sources.group.standing import ListedLog, Seen, Sighting, path_beside, write_seen
from sources.offsets import Offset, OffsetRange
from sources.options import ReadOptions
from tests.around import at_each
from tests.patience import PATIENCE_S
from tests.pipeline.running import job_config


class Query:
    """`pipeline.job.stream.Stream`: each start is noted, and it ends when the test says so."""

    def __init__(self, spark: object, name: str, options: Mapping[str, str], apply: object) -> None:
        self.options = options
        self.started = 0
        self.is_started = False
        self.has_ended = False
        self.is_stopped = False
        self.in_batch = threading.Lock()

    def load(self) -> None:
        pass

    def start(self, checkpoint: Path, trigger: Mapping[str, object]) -> None:
        self.started += 1
        self.is_started = True

    def end(self) -> LogtwinError | None:
        self.is_started = self.has_ended = False
        return None

    def stop(self) -> None:
        self.is_stopped = True


class Batches:
    """`sinks.batch.group.Group`: says of each log what the test says."""

    def __init__(self, *_: object, patience_s: float | None = None, **__: object) -> None:
        self.patience_s = patience_s
        self.outcomes: dict[str, BatchResult | LogtwinError] = {}

    def apply(self, batch: object, replicas: Mapping[str, object]) -> dict[str, BatchResult | LogtwinError]:
        return {log_id: self.outcomes[log_id] for log_id in replicas if log_id in self.outcomes}

    def lost(self, replicas: object) -> dict[str, LogtwinError]:
        return {}


class Member:
    """What a group asks of a `Replication`; it has `logs`, by default the one that it is."""

    def __init__(self, log_id: str, folder: Path, *logs: str) -> None:
        self.id = log_id
        self.options = ReadOptions(id=log_id, path=str(folder))
        self.phase = Phase.RUNNING
        self.turn = 1
        self.in_use = threading.Lock()
        self.replicas = {one: SimpleNamespace(master=None) for one in logs or (log_id,)}
        self.taken: list[BatchResult] = []
        self.heard: list[dict[str, Offset]] = []
        self.noted: LogtwinError | None = None

    @property
    def is_read(self) -> bool:
        return self.phase is Phase.RUNNING and self.noted is None

    @property
    def places(self) -> dict[str, ListedLog]:
        return {log_id: ListedLog(Offset(0), self.turn) for log_id in self.replicas}

    def hear(self, seen: Seen, now_s: float) -> None:
        self.heard.append({log_id: one.bounds.end for log_id, one in seen.items()})

    def came_to(self, outcomes: Mapping[str, Outcome]) -> None:
        self.taken += [one for one in outcomes.values() if isinstance(one, BatchResult)]
        for one in outcomes.values():
            if isinstance(one, LogtwinError):
                self.note(one)

    def note(self, error: LogtwinError) -> None:
        self.noted = error

    def restart(self) -> None:
        self.noted, self.phase, self.turn = None, Phase.RUNNING, self.turn + 1

    def end(self) -> None:
        self.phase = Phase.DONE


class Made:
    """A group of two members, that runs to their ends; a has these `logs`."""

    def __init__(self, tmp_path: Path, *logs: str, available_now: bool) -> None:
        self.a, self.b = Member("rocketmq/a", tmp_path, *logs), Member("rocketmq/b", tmp_path)
        spark = cast(Any, type("Spark", (), {"sparkContext": type("Context", (), {"defaultParallelism": 2})}))
        members = cast(list[Replication], [self.a, self.b])
        config = job_config(tmp_path / "lake", path=str(tmp_path))
        self.group = LogGroup(cast(SparkSession, spark), config, LOG, members, available_now=available_now)
        self.query = cast(Query, self.group._stream)
        self.batches = cast(Batches, self.group._group)

    def poll(self) -> None:
        self.group.poll(time.monotonic())

    def batch(self, **outcomes: BatchResult | LogtwinError) -> None:
        named = {f"rocketmq/{name}": outcome for name, outcome in outcomes.items()}
        errors = {log_id: one for log_id, one in named.items() if isinstance(one, LogtwinError)}
        self.batches.outcomes = {log_id: one for log_id, one in named.items() if log_id not in errors}
        self.group._apply(GroupOffset(1, errors=errors))

    def listed(self) -> dict[str, int]:
        said = standing.file_at(self.query.options["standing"]).read()
        return {log_id: place.turn for log_id, place in said.positions.items()}


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(log_group, "Stream", Query)
    monkeypatch.setattr(log_group, "Group", Batches)
    monkeypatch.setattr(log_group, "process_folder", lambda: tmp_path)


def test_a_query_to_the_end_of_its_logs_waits_until_each_has_begun(tmp_path: Path) -> None:
    made = Made(tmp_path, available_now=True)
    made.a.phase = Phase.STARTING
    made.poll()
    assert made.query.started == 0
    made.a.phase = Phase.FAILED
    made.poll()
    assert (made.query.started, made.listed()) == (1, {"rocketmq/b": 1})


def test_the_logs_of_one_member_are_told_and_taken_together(tmp_path: Path) -> None:
    """A topic's partitions: what one of them met takes all of them out, and what the others were brought counts."""
    made = Made(tmp_path, "rocketmq/a0", "rocketmq/a1", "rocketmq/a2", available_now=False)
    made.poll()
    assert made.listed() == {"rocketmq/a0": 1, "rocketmq/a1": 1, "rocketmq/a2": 1, "rocketmq/b": 1}
    results = [BatchResult(OffsetRange(Offset(0), Offset(end)), end, end) for end in (3, 5)]
    error = MasterSilent("away")
    made.batch(a0=results[0], a1=error, b=results[1])
    assert (made.a.taken, made.b.taken) == ([results[0]], [results[1]])
    assert made.a.noted is error
    assert made.listed() == {"rocketmq/b": 1}


def test_an_error_reaches_a_member_that_is_in_use(tmp_path: Path) -> None:
    """The planner tells it once, and leaves the log alone until it is listed anew: a topic gains a partition then."""
    made = Made(tmp_path, available_now=False)
    error = MasterSilent("away")
    with made.a.in_use:
        made.batch(a=error, b=BatchResult(OffsetRange(Offset(0), Offset(3)), 3, 3))
    assert made.a.noted is error
    assert len(made.b.taken) == 1


def test_a_member_that_comes_is_known_to_the_planner_before_it_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(tmp_path, available_now=False)
    made.poll()
    file = MastersFile(made.query.options["masters"])
    assert [one.id for one in file.added()] == ["rocketmq/a", "rocketmq/b"]
    c = cast(Replication, Member("rocketmq/c", tmp_path))
    with monkeypatch.context() as full:
        full.setattr(masters, "write", lambda *_: os.open("/nowhere", 0))
        with pytest.raises(LogtwinError, match="which masters there are"):
            made.group.add([c])
    made.poll()
    assert (file.added(), set(made.listed())) == ([], {"rocketmq/a", "rocketmq/b"})
    made.group.add([c])
    assert [one.id for one in file.added()] == ["rocketmq/c"]
    made.poll()
    assert set(made.listed()) == {"rocketmq/a", "rocketmq/b", "rocketmq/c"}
    assert made.query.started == 1


def test_a_log_that_comes_back_too_late_is_read_by_another_query(tmp_path: Path) -> None:
    """The query has looked before the log was listed anew, and knows nothing of it."""
    made = Made(tmp_path, available_now=True)
    made.poll()
    made.batch(a=MasterSilent("away"))
    made.a.restart()
    made.query.has_ended = True
    made.poll()
    assert (made.a.phase, made.b.phase) == (Phase.RUNNING, Phase.DONE)
    assert made.query.started == 2
    assert made.listed() == {"rocketmq/a": 2}
    made.query.has_ended = True
    made.poll()
    assert made.a.phase is Phase.DONE


def test_the_logs_that_are_read_hear_what_the_planner_has_seen(tmp_path: Path) -> None:
    """At once if it is new, and again every five seconds, because a log that stands still is news for its growth."""
    made = Made(tmp_path, available_now=False)
    made.b.phase = Phase.WAITING
    path = path_beside(Path(made.query.options["standing"]))
    for end, at_s in ((5, 100.0), (6, 100.1), (6, 100.2), (6, 105.0), (6, 105.2)):
        write_seen(path, {"rocketmq/a": Sighting(OffsetRange(Offset(0), Offset(end)), 1)})
        made.group.poll(at_s)
    assert [heard["rocketmq/a"] for heard in made.a.heard] == [5, 6, 6]
    assert made.b.heard == []


def test_the_planner_is_never_told_of_an_older_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job says it while it looks, and each batch when it ends."""
    made = Made(tmp_path, available_now=False)
    made.poll()
    is_writing, may_end = threading.Event(), threading.Event()

    def hold_up(*_: object) -> None:
        is_writing.set()
        may_end.wait(PATIENCE_S)

    at_each(monkeypatch, standing, "write", hold_up, when=lambda *_: threading.current_thread() is looking)
    looking = threading.Thread(target=made.poll)
    in_batch = threading.Thread(target=lambda: made.batch(b=MasterSilent("away")))
    made.a.restart()
    looking.start()
    assert is_writing.wait(PATIENCE_S)
    in_batch.start()
    in_batch.join(0.2)
    may_end.set()
    looking.join(PATIENCE_S)
    in_batch.join(PATIENCE_S)
    assert made.listed() == {"rocketmq/a": 2}


def test_a_batch_under_way_does_not_take_a_stop_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(tmp_path, available_now=False)
    made.poll()
    path, seen = made.query.options["standing"], []

    def end_a_batch() -> None:
        made.batch(a=MasterSilent("away"))
        seen.append(standing.file_at(path).read().is_stopping)

    monkeypatch.setattr(made.query, "stop", end_a_batch)
    made.group.stop()
    assert seen == [True]
    assert not Path(path).exists()


@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, StorageUnreachable), (errno.EACCES, ReplicaError)], ids=["full", "refused"]
)
def test_a_standing_that_cannot_be_written_is_an_error_of_each_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, available_now: bool, number: int, kind: type[ReplicaError]
) -> None:
    made, refuse = Made(tmp_path, available_now=available_now), Mock(side_effect=OSError(number, os.strerror(number)))
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(standing, "write", refuse)
        made.poll()
        assert made.query.started == 0  # it would not know what to read
        for member in (made.a, made.b):
            assert type(member.noted) is kind
            assert member.noted.log == member.id
            assert os.strerror(number) in str(member.noted)
    made.a.restart()
    made.poll()
    assert (made.query.started, made.listed()) == (1, {"rocketmq/a": 2})
    monkeypatch.setattr(standing, "write", refuse)
    made.a.turn += 1
    made.batch()
    assert type(made.a.noted) is kind
    made.group.stop()
    assert made.query.is_stopped
