"""Typed tables, step by step: what of a message becomes what, once, whatever happens."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import deltalake
import pyarrow as pa
import pytest

from pipeline.config.typed_tables import TypedTableConfig
from pipeline.inspect.typed_status import TypedCounts, typed_statuses
from sinks.typed.dead_letters import DeadLetters, UnfitCount, unfit_count
from sinks.typed.rebuild import drop, rebuild
from sinks.typed.table import SchemaChanges, TypedTable
from sources.errors import ConfigurationError
from sources.offsets import LogId, Offset, OffsetRange
from tests.pipeline.running import job_config
from tests.pipeline.typed.world import World, bring, definition, fields
from tests.sinks.unheard import lose_answers, missing_files

COMMON = ("log_id", "offset", "batch_index", "stored_at", "_rest")


def test_a_killed_step_is_done_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its dead letters, between them and its rows, and after its rows; the log goes on meanwhile."""
    sent = 0
    for at in ("bring", "commit", "changes"):
        world.send({"id": sent, f"came_{at}": 1}, b"broken", {"id": "text"} if sent else {"id": 7})
        sent += 3
        world.replicate()
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            kill(patched, at)
            bring(world.follower())
        world.send({"id": sent}, b"broken, too")
        sent += 2
        world.replicate()
        bring(world.follower())
    rows, unfit = world.rows(), world.unfit()
    whole = [row["offset"] for row in unfit if row["column"] is None]
    assert len(rows) + len(whole) == sent
    assert len({row["offset"] for row in rows} | set(whole)) == sent
    assert [row["found"] for row in unfit if row["column"] == "id"] == ['"text"', '"text"']
    assert [change[0] for change in world.changes()] == ["id", "came_bring", "came_commit", "came_changes"]


def test_dead_letters_are_there_once_after_idle_steps_and_a_kill(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that nothing came for stands further than its table says, for some seconds."""
    monkeypatch.setattr("sinks.typed.step.follower._IDLE_S", 1e9)
    follower = world.follower()
    world.send({"id": 1})
    world.replicate()
    bring(follower)
    for _ in range(3):
        world.send("nothing for it", topic="elsewhere")
        world.replicate()
        assert follower.step() is not None
    world.send(b"broken")
    world.replicate()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        kill(patched, "commit")
        follower.step()
    bring(world.follower())
    assert [row["reason"] for row in world.unfit()] == ["not_json"]
    assert fields(world.rows()) == [{"id": 1}]


def test_a_retry_waits_for_a_step_under_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of the step come when the retry, which began meanwhile, is about to commit."""
    world.send({"id": 1}, b"broken")
    world.follow()
    world.send({"id": 2}, b"broken, too")
    world.replicate()
    job, other = world.follower(), world.follower()
    commit, held = TypedTable.commit, list[Callable[[], None]]()

    def late(self: TypedTable, *how: Any, **more: Any) -> None:
        if not held:
            held.append(partial(commit, self, *how, **more))
            assert other.retry() == 2
            return
        if len(held) == 1:
            held.append(held[0])
            held[0]()
        commit(self, *how, **more)

    with monkeypatch.context() as patched:
        patched.setattr(TypedTable, "commit", late)
        job.step()
    assert len(held) == 2
    other.bring_to_end()
    assert [row["body"] for row in world.unfit()] == [b"broken", b"broken, too"]
    assert fields(world.rows()) == [{"id": 1}, {"id": 2}]


def kill(patched: pytest.MonkeyPatch, at: str) -> None:
    """The next call of that part of a step ends the process, as far as a test can."""

    kind = {"bring": DeadLetters, "commit": TypedTable, "changes": SchemaChanges}[at]
    patched.setattr(kind, "commit" if at == "commit" else "bring", Mock(side_effect=KeyboardInterrupt))


def test_commits_that_land_unheard_are_done_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.send({"id": "a"}, b"{broken", {"id": "c"})
    lost = lose_answers(monkeypatch)
    world.follow()
    assert {*lost} >= {"orders", "unfit", "schema_changes"}
    lost = lose_answers(monkeypatch)
    assert rebuild(world.spark, world.lake, definition()) is not None
    assert lost["orders"] == 1
    assert missing_files(Path(world.lake)) == []
    assert fields(world.rows()) == [{"id": "a"}, {"id": "c"}]
    assert [row["reason"] for row in world.unfit()] == ["not_json"]


def test_two_followers_take_each_message_once(world: World) -> None:
    one, other = world.follower(), world.follower()
    for number in range(3):
        world.send({"id": number}, b"broken")
        world.replicate()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(bring, (one, other)))
    assert [row["id"] for row in world.rows()] == [0, 1, 2]
    assert len(world.unfit()) == 3


def test_by_key_there_is_one_row_the_newest(world: World) -> None:
    how = {"key": ("id",), "name": "by_key", "deleted": {"op": ("d",)}}
    expected: dict[str, dict[str, object]] = {}
    chance = random.Random(5)
    follower = world.follower(**how)
    for _ in range(3):
        for _ in range(30):
            row: dict[str, object] = {"id": f"k{chance.randrange(12)}", "n": chance.randrange(100)}
            expected[str(row["id"])] = row
            if chance.random() < 0.3:
                del expected[str(row["id"])]
                row["op"] = "d"
            world.send(row)
        world.send({"n": 1}, {"id": None, "n": 2})
        world.replicate()
        bring(follower)
    rows = world.rows("by_key")
    found = fields([{**row, "_deleted": None} for row in rows if not row["_deleted"]])
    assert len(found) < len(rows) == 12
    assert sorted(found, key=lambda row: row["id"]) == sorted(expected.values(), key=lambda row: str(row["id"]))
    assert {(row["column"], row["reason"]) for row in world.unfit()} == {(None, "no_key")}
    assert len(world.unfit()) == 6
    wanted = TypedTableConfig.model_validate(
        {"name": "by_key", "from": ["orders"], "mode": "upsert", "key": ["id"], "deletes": {"op": ["d"]}}
    )
    (status,) = typed_statuses(job_config(world.lake, **world.options).model_copy(update={"tables": (wanted,)}))
    assert status.counts == TypedCounts(len(found), len(rows) - len(found), UnfitCount(6, 6, 6))


@pytest.mark.parametrize("keeps_history", [False, True])
@pytest.mark.parametrize("key", ["a.b", "_row", "_file", "_at"])
def test_a_key_may_have_any_name(world: World, key: str, keeps_history: bool) -> None:
    """Also that of a part of another column."""
    kinds = {"a": "struct<b:bigint>", key: "bigint"}
    follower = world.follower(key=(key,), schema=kinds, keeps_history=keeps_history)
    for b in (1, 2):
        world.send({key: 7, "a": {"b": b}})
        world.replicate()
        bring(follower)
    stand = [row for row in world.rows() if row.get("_valid_to") is None]
    assert [(row[key], row["a"]) for row in stand] == [(7, {"b": 2})]


def test_what_does_not_fit_is_counted_by_value_and_by_message(world: World) -> None:
    world.send({"a": "x", "b": "y"}, b"broken", {"a": "x", "b": 1}, {"a": 1})
    world.follow(schema={"a": "int", "b": "int"})
    counted = partial(unfit_count, world.lake, "orders", 1)
    assert counted() == UnfitCount(values=4, messages=3, without_row=1)
    first = OffsetRange(Offset(0), Offset(world.rows()[1]["offset"]))
    assert counted({LogId("rocketmq", "test"): [first]}) == UnfitCount(values=3, messages=2, without_row=1)
    assert counted({}) == unfit_count(world.lake, "other", 1) == UnfitCount()


def test_a_rebuilt_table_equals_the_streamed_one_and_takes_another_definition(world: World) -> None:
    follower = world.follower()
    for number in range(3):
        world.send({"id": number, f"only_{number}": number}, {"id": "text"}, b"broken")
        world.replicate()
        bring(follower)
    before, unfit = world.rows(), world.unfit()
    state = rebuild(world.spark, world.lake, definition())
    assert state is not None
    assert world.rows() == before
    assert [{**row, "generation": 1} for row in world.unfit()] == unfit
    assert {row["generation"] for row in world.unfit()} == {2}
    assert bring(follower) == 0
    other = {"schema": {"id": "string"}, "renamed": {"id": "order_id"}, "dropped": ("only_0",)}
    with pytest.raises(ConfigurationError, match="logtwin tables rebuild orders"):
        bring(world.follower(**other))
    rebuild(world.spark, world.lake, definition(**other))
    assert fields(world.rows()) == [
        {},
        {"order_id": "text"},
        {"_rest": '{"only_1":1}'},
        {"order_id": "text"},
        {"_rest": '{"only_2":2}'},
        {"order_id": "text"},
    ]
    assert not list(Path(world.lake, "tables").glob("*.anew"))
    assert drop(world.spark, world.lake, "orders")
    assert not Path(world.lake, "tables", "orders").exists()
    assert world.unfit() == []
    told = len(world.changes())
    bring(world.follower(name="orders"))
    assert len(world.changes()) == told + len([*world.rows()[0]]) - len(COMMON)


def test_a_table_does_not_depend_on_where_steps_end(world: World) -> None:
    """Integers that would lose a digit, or might, and fractions: whichever came first says what the column is."""
    large = {"new": (1 << 53) + 1, "old": 1 << 60}
    at_once, steps = ({one: world.follower(name=f"{one}_{way}", topics=(one,)) for one in large} for way in "as")
    world.send({"n": 1, "m": 1}, topic="old")
    world.replicate()
    bring(at_once["old"])
    bring(steps["old"])
    for number in range(3):
        for topic, one in large.items():
            world.send([{"n": one, "m": 2}, {"n": 1.5, "m": 0.5}, {"n": 2, "m": one}][number], topic=topic)
        world.replicate()
        for follower in steps.values():
            bring(follower)
    for follower in at_once.values():
        bring(follower)
    for name, one in large.items():
        told, told_in_steps = (
            (
                fields(world.rows(f"{name}_{way}")),
                [(row["column"], row["reason"]) for row in world.unfit() if row["table"] == f"{name}_{way}"],
            )
            for way in "as"
        )
        assert told == told_in_steps
        rows, unfit = told
        assert [row.get("n") for row in rows[-3:]] == [one, None, 2]
        assert [type(row.get("m")) for row in rows[-3:]] == [float, float, type(None) if one % 2 else float]
        assert unfit == [("n", "not_bigint"), *([("m", "not_double")] if one % 2 else [])]


def test_a_table_of_others_is_left_alone(world: World) -> None:
    world.send({"id": 1})
    path = f"{world.lake}/tables/orders"
    deltalake.write_deltalake(path, pa.table({"id": ["mine"]}))
    with pytest.raises(ConfigurationError, match="not one that this version of logtwin made"):
        world.follow()
    assert deltalake.DeltaTable(path).to_pyarrow_table()["id"].to_pylist() == ["mine"]
    view = TypedTable(world.spark, world.lake, "orders").look()
    assert view is not None
    assert view.state is None
