"""Which columns fields become: names, kinds, and what changes them."""

from __future__ import annotations

from itertools import permutations

import pytest

from sinks.typed.columns import Column, MessagePlace, SeenValues, is_name, with_found


def place(offset: int, log: str = "rocketmq/a") -> MessagePlace:
    return MessagePlace(log, offset)


def seen(field: str, **first: int) -> SeenValues:
    return SeenValues(field, {kind: place(offset) for kind, offset in first.items()})


def names(*found: SeenValues, most: int = 200, columns: tuple[Column, ...] = ()) -> list[tuple[str, str]]:
    made, _ = with_found(columns, found, renamed={}, masks={}, most=most)
    return [(one.name, one.kind) for one in made]


def test_columns_come_in_the_order_of_the_log() -> None:
    fields = [seen("b", string=1), seen("a", bigint=5), seen("c", json=3)]
    for order in permutations(fields):
        assert names(*order) == [("b", "string"), ("c", "json"), ("a", "bigint")]


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        ({"bigint": 1, "double": 9}, "double"),
        ({"double": 1, "bigint": 9}, "double"),
        ({"string": 1, "bigint": 2, "double": 3}, "string"),
        ({"bigint": 1, "string": 2, "double": 3}, "double"),
        ({"json": 4, "boolean": 5}, "json"),
    ],
)
def test_the_first_value_decides_and_a_fraction_makes_numbers_double(first: dict[str, int], kind: str) -> None:
    assert seen("x", **first).kind == kind


def test_what_tasks_have_seen_goes_together_in_any_order() -> None:
    parts = [seen("x", bigint=7), seen("x", bigint=3, string=4), seen("x", double=9)]
    for order in permutations(parts):
        found = order[0].and_also(order[1]).and_also(order[2])
        assert found == SeenValues("x", {"bigint": place(3), "string": place(4), "double": place(9)})


@pytest.mark.parametrize("field", ["", "a b", "a,b", "a=b", "x\ty", "f(x)", "{", "line\nbreak"])
def test_a_name_that_no_column_can_have_gets_none(field: str) -> None:
    assert not is_name(field)
    assert names(seen(field, string=1)) == []


def test_a_name_has_a_length_at_most_that_a_column_can_have() -> None:
    assert is_name("n" * 255)
    assert not is_name("n" * 256)
    assert names(seen("n" * 256, string=1), seen("n" * 255, string=2)) == [("n" * 255, "string")]
    made, _ = with_found((), [seen("n" * 256, string=1)], renamed={"n" * 256: "n"}, masks={}, most=9)
    assert [one.name for one in made] == ["n"]


def test_names_that_differ_in_case_alone_are_one_column() -> None:
    assert names(seen("Amount", bigint=1), seen("amount", bigint=2)) == [("Amount", "bigint")]
    assert names(seen("_REST", string=1)) == []


def test_a_field_that_is_called_as_a_place_gets_another_name() -> None:
    assert names(seen("offset", bigint=1), seen("log_id", string=2)) == [("offset_", "bigint"), ("log_id_", "string")]


def test_there_are_at_most_so_many() -> None:
    bomb = [seen(f"f{number}", string=number) for number in range(10_000)]
    assert names(*bomb, most=3) == [("f0", "string"), ("f1", "string"), ("f2", "string")]


def test_renamed_and_masked() -> None:
    made, changes = with_found(
        (), [seen("cardNo", bigint=4)], renamed={"cardNo": "card"}, masks={"cardNo": "hash"}, most=9
    )
    assert made == (Column("card", "cardNo", "bigint", "hash"),)
    assert str(made[0].type) == "string"
    assert [(one.column, one.change, one.log_id, one.offset) for one in changes] == [("card", "added", "rocketmq/a", 4)]
