"""Messages at which Spark's workers die, or run out of memory: they are left out and named, and all others are rows."""

import os
import signal
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sinks.typed.step.parsing import OfStep, Parsing
from sinks.typed.step.report import Told
from sinks.typed.table import TypedTable
from sources.errors import UnfitMessage, WorkerLost
from tests.around import at_first
from tests.pipeline.typed.in_process import WorkerDies
from tests.pipeline.typed.test_steps import kill
from tests.pipeline.typed.world import InFiles, World, bring, fields

BAD = {"id": "bad"}
MOST_TRIES = 60


class Deadly(Parsing):
    """Ends the worker at a message that has the word bad in it, as a defect of native code does."""

    def rows(self, messages: pa.RecordBatch, told: Told) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        if any(b"bad" in (body or b"") for body in messages["body"].to_pylist()):
            self.end()
        return super().rows(messages, told)

    def end(self) -> None:
        raise WorkerDies


class ReallyDeadly(Deadly):
    """Kills its process there."""

    def end(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)


class Hungry(Deadly):
    """Runs out of memory there."""

    def end(self) -> None:
        raise MemoryError


class Dead(Parsing):
    """Ends the worker whatever it is given: the machine is at fault."""

    def __call__(self, batches: Iterable[pa.RecordBatch], of_step: OfStep) -> Iterator[pa.RecordBatch]:
        raise WorkerDies


@pytest.fixture
def parsed_by(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda kind: monkeypatch.setattr("sinks.typed.step.follower.Parsing", kind)


def numbered(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": f"n{number}"} for number in numbers]


def letters(world: World) -> list[tuple[str | None, str, bytes]]:
    return [(row["column"], row["reason"], row["body"]) for row in world.unfit()]


def test_a_deadly_message_is_left_out_and_named(world: World, parsed_by: Any) -> None:
    parsed_by(Deadly)
    world.send(*numbered(0, 1, 2), BAD, *numbered(3, 4))
    world.replicate()
    bring(world.follower(), MOST_TRIES)
    assert fields(world.rows()) == numbered(0, 1, 2, 3, 4)
    assert letters(world) == [(None, "worker_died", b'{"id": "bad"}')]
    (letter,) = world.unfit()
    assert letter["found"].startswith("3 times: ")
    world.send(*numbered(5))
    world.replicate()
    assert bring(world.follower()) == 1
    assert fields(world.rows())[-1:] == numbered(5)


@pytest.mark.spark
def test_a_message_that_really_kills_workers_is_left_out(by_spark: InFiles, parsed_by: Any) -> None:
    parsed_by(ReallyDeadly)
    follower = by_spark.follower()
    for one in (*numbered(0), BAD, *numbered(1)):
        by_spark.send(one)
        by_spark.replicate()
        bring(follower, MOST_TRIES)
    assert fields(by_spark.rows()) == numbered(0, 1)
    assert letters(by_spark) == [(None, "worker_died", b'{"id": "bad"}')]


def test_a_search_that_is_killed_leaves_each_message_once(
    world: World, parsed_by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two bad messages; the first restart is in the search, the second behind the dead letter of the first."""
    parsed_by(Hungry)
    world.send(BAD, *numbered(0), BAD, *numbered(1, 2))
    world.replicate()
    first = world.follower()
    for _ in range(4):
        assert first.step() is not None
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        second = world.follower()
        of_letters = {"after": True, "when": lambda files, *_: files}
        at_first(patched, second._dead_letters, "bring", lambda: kill(patched, "commit"), **of_letters)
        bring(second, MOST_TRIES)
    assert [reason for _, reason, _ in letters(world)] == ["worker_died"]
    bring(world.follower(), 2 * MOST_TRIES)
    assert fields(world.rows()) == numbered(0, 1, 2)
    assert [reason for _, reason, _ in letters(world)] == ["worker_died", "worker_died"]
    assert len({row["offset"] for row in world.unfit()}) == 2
    assert all("MemoryError" in row["found"] for row in world.unfit())


def test_stops_at_unfit_names_the_deadly_message(world: World, parsed_by: Any) -> None:
    parsed_by(Hungry)
    world.send(*numbered(0), BAD, *numbered(1))
    world.replicate()
    follower = world.follower(stops_at_unfit=True)
    for _ in range(2):  # it goes on saying so, without another search
        with pytest.raises(UnfitMessage) as raised:
            bring(follower, MOST_TRIES)
    at = sorted(DeltaTable(f"{world.lake}/log").to_pyarrow_table(columns=["offset"])["offset"].to_pylist())[1]
    assert (raised.value.log, raised.value.offset) == ("rocketmq/test", at)
    assert "worker_died" in str(raised.value)
    assert fields(world.rows()) == numbered(0)


def test_no_message_is_blamed_where_workers_die_at_anything(world: World, parsed_by: Any) -> None:
    world.send(*numbered(0))
    world.replicate()
    parsed_by(Dead)
    follower = world.follower()
    for _ in range(4):
        with pytest.raises(WorkerLost):
            follower.step()
    parsed_by(Parsing)
    bring(world.follower())
    assert fields(world.rows()) == numbered(0)
    assert TypedTable(world.spark, world.lake, "orders").look() is not None
    assert world.unfit() == []
