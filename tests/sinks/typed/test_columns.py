"""Which columns fields become: names, kinds, and what changes them."""

from itertools import permutations

import pytest

from sinks.typed.columns import Column, MessagePlace, SeenValues, with_found
from sinks.typed.kinds import is_name, joined_kind


def place(offset: int) -> MessagePlace:
    return MessagePlace("rocketmq/a", offset)


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


@pytest.mark.parametrize(
    ("fields", "columns"),
    [
        *(([field], []) for field in ("", "a b", "a,b", "a=b", "x\ty", "f(x)", "{", "line\nbreak", "n" * 256)),
        (["n" * 255], ["n" * 255]),
        (["Amount", "amount", "_REST"], ["Amount"]),  # case alone makes no other name
        (["offset", "log_id"], ["offset_", "log_id_"]),  # the table has such columns
    ],
)
def test_a_field_has_the_name_of_its_column(fields: list[str], columns: list[str]) -> None:
    assert [name for name, _ in names(*(seen(field, string=at) for at, field in enumerate(fields)))] == columns
    assert is_name(fields[0]) == bool(columns)


def test_renamed_and_masked() -> None:
    """A field of any name may be given another."""
    found = [seen("cardNo", bigint=4), seen("n" * 256, string=5)]
    made, changes = with_found((), found, renamed={"cardNo": "card", "n" * 256: "n"}, masks={"cardNo": "hash"}, most=9)
    assert made == (Column("card", "cardNo", "bigint", "hash"), Column("n", "n" * 256, "string"))
    assert str(made[0].type) == "string"
    assert [(one.column, one.change, one.log_id, one.offset) for one in changes] == [
        ("card", "added", "rocketmq/a", 4),
        ("n", "added", "rocketmq/a", 5),
    ]


@pytest.mark.parametrize(
    ("one", "other", "joined"),
    [
        ("decimal(10,2)", "decimal(12,2)", "decimal(12,2)"),
        ("decimal(12,2)", "decimal(10,2)", "decimal(12,2)"),
        ("decimal(10,2)", "decimal(10,4)", "decimal(12,4)"),
        ("bigint", "decimal(20,0)", "decimal(20,0)"),
        ("bigint", "decimal(10,2)", "decimal(21,2)"),
        ("int", "decimal(5,2)", "decimal(12,2)"),
        ("bigint", "int", "bigint"),
        ("decimal(38,0)", "decimal(10,2)", None),
        ("bigint", "double", None),
        ("string", "decimal(10,2)", None),
        ("string", "string", "string"),
    ],
)
def test_a_kind_for_the_values_of_two(one: str, other: str, joined: str | None) -> None:
    assert joined_kind(one, other) == joined_kind(other, one) == joined
