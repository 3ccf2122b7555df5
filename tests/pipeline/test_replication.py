"""The life of what is replicated: from which phase to which, and that an end is an end."""

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from pipeline.job import replication
from pipeline.job.losses import Losses
from pipeline.job.replication import Replication
from pipeline.monitoring import publisher as publishing
from pipeline.monitoring.progress import Phase, Progress
from pipeline.monitoring.publisher import Publisher
from pipeline.monitoring.run_state import FRESH_S
from sinks.batch.proof import BatchResult
from sinks.batch.replica import Opening
from sinks.state.fence import this_writer
from sources.errors import (
    BelowMinimum,
    ConfigurationError,
    HeldElsewhere,
    LogtwinError,
    MasterRefused,
    MasterSilent,
    NoSuchTopic,
    ReplicaError,
    StorageUnreachable,
    TakenOver,
)
from sources.offsets import LogId
from sources.shards import Shard
from tests.pipeline.running import job_config
from tests.pipeline.sample_progress import PROGRESS
from tests.sinks.memory_master import MemoryMaster
from tests.spans import span

PICTURE = {
    before: {after, other}
    for before, after, other in re.findall(r"^ +(\w+) +──▶ (\w+) \| (\w+)", replication.__doc__ or "", re.MULTILINE)
}
GOES_ON = PICTURE.keys() - {"any"}
"""What leads anywhere has not ended: "any" is one of these."""


def is_way(before: Phase, after: Phase) -> bool:
    return before.value in GOES_ON and after.value in PICTURE[before.value] | PICTURE["any"]


def logs(*_: object) -> Mock:
    """Its `ReplicatedLogs`: what it does to master and tables is only noted."""
    said: dict[str, Any] = {
        "claim": None,
        "resume": {},
        "bring_slow": None,
        "meet": False,
        "meet_alone": False,
        "let_go": True,
    }
    return Mock(
        master=MemoryMaster((100,)),
        has_news=False,
        elsewhere={},
        replicas={},
        losses=Losses("fail", lambda *_: None, lambda _: None, overrules=False),
        explained=lambda error: error,
        **{"session.failure": None},
        **{f"{name}.return_value": value for name, value in said.items()},
    )


class Replicated(Replication):
    """It publishes nothing, and fetches no metadata."""

    _logs: Any

    def progress(self) -> Progress:
        return replace(PROGRESS, phase=self.phase)

    def _start_metadata(self) -> None:
        pass


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replicated]:
    monkeypatch.setattr(replication, "ReplicatedLogs", logs)
    config = job_config(tmp_path / "lake", path=str(tmp_path))
    publisher = Publisher(config.warehouse, this_writer())
    ways: dict[str, Any] = {"available_now": False, "opening": Opening(), "publisher": publisher}
    yield Replicated(cast(SparkSession, None), config, config.logs[0], **ways)
    publisher.close()


def test_the_picture_has_each_phase() -> None:
    assert {"starting", "running", "waiting"} == GOES_ON
    assert GOES_ON.union(*PICTURE.values()) == {phase.value for phase in Phase}


@pytest.mark.parametrize(("before", "after"), list(product(Phase, Phase)), ids=lambda phase: phase.value)
def test_the_ways_are_those_of_the_picture(one: Replicated, before: Phase, after: Phase) -> None:
    one._phase = before
    if is_way(before, after):
        assert one._go_to(after)
        assert one.phase is after
    elif before.value not in GOES_ON:
        assert not one._go_to(after)
        assert one.phase is before
    else:
        with pytest.raises(RuntimeError, match=f"cannot go from {before.value} to {after.value}"):
            one._go_to(after)
        assert one.phase is before


def test_a_stop_during_the_start_closes_the_session(one: Replicated) -> None:
    one._logs.claim.side_effect = lambda **_: one.stop(0.0)
    one.start()
    assert one.phase is Phase.STOPPED
    assert not one.is_read
    assert one._logs.session.close.call_count == 2  # the stop closed a session that has begun again since


def test_what_comes_after_an_end_changes_nothing(one: Replicated) -> None:
    one.start()
    one.fail(ReplicaError("the first"), for_good=True)
    one.fail(MasterSilent("the second"), for_good=False)
    one.stop(0.0)
    assert one.phase is Phase.FAILED
    assert str(one.error).startswith("the first")


def test_a_master_that_is_away_is_asked_again_with_longer_waits(one: Replicated) -> None:
    one.start()
    for _ in range(2):
        one.fail(MasterSilent("away"), for_good=False)
        assert one.phase is Phase.WAITING
    assert one.poll(one._retry_at_s - 0.001) is Phase.WAITING
    assert one.poll(one._retry_at_s) is Phase.RUNNING
    assert one.turn == 2


def test_a_session_that_meets_another_log_ends_it_once_no_batch_is_under_way(one: Replicated) -> None:
    """For good, whatever the error is, and from then on nobody is asked."""
    one.start()
    one._logs.session.failure = MasterRefused("another record")
    with one.in_use:
        assert (one.is_due(0.0), one.poll(0.0)) == (True, Phase.RUNNING)
    assert one.poll(0.0) is Phase.FAILED
    assert (one.is_due(0.0), one.poll(0.0)) == (False, Phase.FAILED)
    one._logs.session.close.assert_called_once()
    assert one.error is not None and one.error.problem == "another record"


def test_a_loss_that_was_passed_is_read_past_at_once_and_one_that_cannot_be_is_the_error(one: Replicated) -> None:
    one.start()
    one._logs.meet.return_value = True
    one.note(BelowMinimum("lost"))
    assert one.poll(0.0) is Phase.WAITING
    assert one.poll(time.monotonic()) is Phase.RUNNING

    one._logs.meet.side_effect = ReplicaError("it cannot be recorded")
    one.note(BelowMinimum("lost"))
    assert one.poll(0.0) is Phase.FAILED
    assert one.error is not None and one.error.problem == "it cannot be recorded"
    assert one._failures == {"BelowMinimum": 2, "ReplicaError": 1}


def test_an_error_of_partitions_that_came_is_the_topics(one: Replicated) -> None:
    one.start()
    one._logs.has_news, one._logs.add.side_effect = True, MasterSilent("away")
    assert one.poll(0.0) is Phase.RUNNING
    assert not one.is_read
    assert one.poll(0.0) is Phase.WAITING


@pytest.mark.parametrize(("ends_well", "called"), [(True, "finish"), (False, "stop")])
def test_metadata_is_fetched_once_more_where_all_is_well(one: Replicated, ends_well: bool, called: str) -> None:
    calls = list[str]()
    one.start()
    ways = {name: lambda *_, name=name: calls.append(name) for name in ("finish", "stop")}
    one._metadata = cast(Any, SimpleNamespace(**ways))
    if not ends_well:
        one.fail(MasterSilent("away"), for_good=False)
    one.stop(0.0)
    assert (one.phase, calls) == (Phase.STOPPED, [called])


@pytest.mark.parametrize(
    ("may_leave", "kind", "phase"),
    [
        (True, NoSuchTopic, Phase.WAITING),
        (True, ConfigurationError, Phase.FAILED),
        (False, NoSuchTopic, Phase.FAILED),  # whoever named it may have named a wrong one
    ],
)
def test_a_topic_that_a_pattern_has_found_may_be_away(
    one: Replicated, may_leave: bool, kind: type[LogtwinError], phase: Phase
) -> None:
    one._may_leave = may_leave
    one.start()
    one.fail(kind("there is none"), for_good=False)
    assert one.phase is phase


def test_a_log_of_a_shard_that_another_job_has_is_waited_for(
    one: Replicated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own run says that it waits, and not that it has the log: or two that wait would wait for each other."""
    monkeypatch.setattr(publishing, "LOOK_AGAIN_S", 0.0)
    one.start()
    lake, config = str(tmp_path / "lake"), one._config.model_copy(update={"shard": Shard(1, 1)})
    publisher = Publisher(lake, replace(this_writer(), run="mine"), "1/1")
    ways: dict[str, Any] = {"available_now": False, "opening": Opening(), "publisher": publisher}
    waiting = Replicated(cast(SparkSession, None), config, config.logs[0], **ways)
    now_s = time.monotonic()
    for ahead in (0, 60, 120):
        with suppress(HeldElsewhere):
            waiting.start() if not ahead else waiting.poll(now_s + ahead)
        if not ahead:
            waiting.fail(HeldElsewhere("held"), for_good=False)
        assert waiting.phase is Phase.WAITING
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    assert waiting._failures == {"HeldElsewhere": 1}
    one.stop(0.0)
    one._publisher.close()
    assert waiting.poll(now_s + 180) is Phase.RUNNING
    waiting.fail(TakenOver("another"), for_good=False)
    assert waiting.poll(0.0) is Phase.WAITING
    waiting.stop(0.0)
    publisher.close()


def test_a_log_with_a_noted_error_is_not_read(one: Replicated) -> None:
    """In between it would be listed in the turn that has failed, and its error could come a second time."""
    seen: list[bool] = []
    one._logs.meet.side_effect = lambda _: bool(seen.append(one.is_read))  # type: ignore[func-returns-value]
    one.start()
    one.note(MasterSilent("away"))
    for _ in range(2):  # met once
        assert one.poll(0.0) is Phase.WAITING
        assert seen == [False]


@pytest.mark.parametrize("at_start", [True, False])
@pytest.mark.parametrize(("error", "phase"), [(MasterRefused, Phase.DONE), (BelowMinimum, Phase.FAILED)])
def test_an_error_of_a_partition_keeps_no_other_from_being_read(
    one: Replicated, error: type[LogtwinError], phase: Phase, at_start: bool
) -> None:
    first, other = (f"kafka/c/t/{number}" for number in (0, 1))
    state = SimpleNamespace(offset=0, identity=None)
    one._logs.replicas = dict.fromkeys((first, other))
    one._logs.states = dict.fromkeys(map(LogId.parse, (first, other)), state)
    one._logs.watch.is_due.return_value = False
    result, of_one = BatchResult(span(0, 0), 0, 0), error("of one", log=first)
    if at_start:
        one._logs.resume.return_value = {first: of_one}
    one.start()
    one._logs.master = SimpleNamespace(traits=SimpleNamespace(gains_logs=True))
    if not at_start:
        one.came_to({first: of_one, other: result})
    assert (one.is_read, one.is_due(0.0)) == (False, True)  # until it is decided, or it would come a second time
    assert one.poll(0.0) is Phase.RUNNING
    assert (one.is_read, set(one.places), one.turn) == (True, {other}, 2)
    assert one.error is not None and one.error.problem == "of one"
    assert one.is_due(1.0) is (phase is Phase.DONE)
    one.poll(1.0)
    one.came_to(dict.fromkeys(one.places, result))
    assert (set(one.places), one.error is None) == (({first, other}, True) if phase is Phase.DONE else ({other}, False))
    one._available_now = True
    one.end()
    assert one.phase is phase


def test_a_partition_whose_error_cannot_be_met_has_the_whole_topic_begin_again(one: Replicated) -> None:
    first = "kafka/c/t/0"
    one._logs.replicas = dict.fromkeys((first, "kafka/c/t/1"))
    one._logs.meet_alone.side_effect = StorageUnreachable("no room for its incident")
    one.start()
    one._logs.master = SimpleNamespace(traits=SimpleNamespace(gains_logs=True))
    one.note(BelowMinimum("lost", log=first))
    assert one.poll(0.0) is Phase.RUNNING
    assert not one.is_read
    assert one.poll(0.0) is Phase.WAITING
    assert one.error is not None and one.error.problem == "no room for its incident"


@pytest.mark.parametrize(
    ("gains_logs", "lets_go", "phase", "wait_s"),
    [(True, True, Phase.WAITING, 0.0), (False, True, Phase.WAITING, FRESH_S), (False, False, Phase.FAILED, 0.0)],
)
def test_what_another_shard_has_taken_is_waited_for_and_other_partitions_go_on_at_once(
    one: Replicated, gains_logs: bool, lets_go: bool, phase: Phase, wait_s: float
) -> None:
    one.start()
    one._is_shard = True
    one._logs.master = SimpleNamespace(traits=SimpleNamespace(gains_logs=gains_logs))
    one._logs.let_go.return_value = lets_go
    before_s = time.monotonic()
    one.fail(TakenOver("another"), for_good=False)
    assert one.phase is phase
    if phase is Phase.WAITING:
        assert before_s + wait_s <= one._retry_at_s <= time.monotonic() + wait_s


def test_errors_of_all_partitions_are_the_topics(one: Replicated) -> None:
    log_id = "kafka/c/t/0"
    refused = MasterRefused("no leader", log=log_id)
    one._logs.replicas = {log_id: None}
    one._logs.resume.side_effect = [{log_id: refused}, {}]
    with pytest.raises(MasterRefused):
        one.start()
    one.start()
    one._logs.master = SimpleNamespace(traits=SimpleNamespace(gains_logs=True))
    one.note(refused)
    assert one.poll(0.0) is Phase.WAITING


def test_a_run_that_ends_says_what_another_job_has(one: Replicated) -> None:
    one._available_now = True
    one.start()
    one._logs.elsewhere = {LogId("kafka", f"c/t/{at}"): "run r" for at in range(12)}
    one.end()
    assert (one.phase, type(one.error)) == (Phase.DONE, HeldElsewhere)
    assert "kafka/c/t/0 by run r" in str(one.error)
    assert "12 in all" in str(one.error)


def test_an_error_that_stays_is_told_once_until_the_log_runs_again(
    one: Replicated, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor again by a job that has told it before it started."""
    one._told = "rocketmq/a: gone"
    for problem, ran, is_told in (
        ("gone", False, False), ("away", False, True), ("away", False, False), ("away", True, True),
    ):  # fmt: skip
        if ran:
            one._go_to(Phase.RUNNING)
        caplog.clear()
        one.fail(MasterSilent(problem, log="rocketmq/a"), for_good=False)
        assert (f"rocketmq/a: {problem}; trying again in " in caplog.text) is is_told, problem
