"""Typed tables, step by step, on a real replica: what of a message becomes what, once, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sources.datasource import register
from tests.pipeline.typed.world import World, bring, fields, world_of

pytestmark = pytest.mark.spark


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    register(spark)
    with world_of(spark, tmp_path) as made:
        yield made


def test_fields_become_columns_and_what_comes_later_more(world: World) -> None:
    first = [{"id": "a", "amount": 1, "paid": True}, {"id": "b", "amount": 2, "note": None}]
    world.send(*first)
    world.follow()
    assert fields(world.rows()) == [{"id": "a", "amount": 1, "paid": True}, {"id": "b", "amount": 2}]
    world.send({"id": "c", "amount": 2.5, "lines": [1, {"sku": "x"}]}, {"id": "d", "city": "Kiel"})
    world.send("no object", topic="elsewhere")
    world.follow()
    assert fields(world.rows()) == [
        {"id": "a", "amount": 1.0, "paid": True},
        {"id": "b", "amount": 2.0},
        {"id": "c", "amount": 2.5, "lines": '[1, {"sku": "x"}]'},
        {"id": "d", "city": "Kiel"},
    ]
    assert world.changes() == [
        ("id", "added", None, "string"),
        ("amount", "added", None, "bigint"),
        ("paid", "added", None, "boolean"),
        ("lines", "added", None, "json"),
        ("city", "added", None, "string"),
        ("amount", "widened", "bigint", "double"),
    ]


def test_what_does_not_fit_is_kept_apart_and_the_rest_of_its_message_is_a_row(world: World) -> None:
    world.send({"id": "a", "amount": 1}, b"{broken", {"id": "c", "amount": "much"}, [1, 2], b"\xff")
    world.follow()
    assert fields(world.rows()) == [{"id": "a", "amount": 1}, {"id": "c"}]
    found = [(row["column"], row["reason"], row["found"], row["body"]) for row in world.unfit()]
    assert found == [
        (None, "not_json", "JSON is malformed: object keys must be strings (byte 1)", b"{broken"),
        ("amount", "not_bigint", '"much"', b'{"id": "c", "amount": "much"}'),
        (None, "no_object", "Expected `object`, got `array`", b"[1, 2]"),
        (None, "not_utf8", "byte 0xff at 0", b"\xff"),
    ]


def test_many_steps_give_what_one_does(world: World) -> None:
    follower = world.follower()
    for number in range(4):
        world.send({"id": number, f"only_{number}": "x"})
        world.replicate()
        bring(follower)
    world.replicate()
    other = world.follower(name="at_once")
    bring(other)
    assert fields(world.rows()) == fields(world.rows("at_once"))
    assert bring(world.follower()) == 0
