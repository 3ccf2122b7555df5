"""Names and patterns in a typed table's ``from``."""

from __future__ import annotations

import json

import pytest

from sinks.typed.definition import Definition, check_topic, is_meant, is_pattern
from sinks.typed.state import TypedState


@pytest.mark.parametrize(
    ("texts", "meant", "others"),
    [
        (["orders"], ["orders"], ["orders-eu", "orderss"]),
        (["orders.eu"], ["orders.eu"], ["orders-eu", "ordersxeu"]),  # a dot alone makes no pattern
        (["%RETRY%g|h"], ["%RETRY%g|h"], ["h", "%RETRY%g"]),
        (["orders-.*"], ["orders-", "orders-eu"], ["orders", "old-orders-eu"]),
        (["(orders|refunds)", "notes"], ["orders", "refunds", "notes"], ["orders|refunds", "order"]),
        (["(?!test)[a-z]+"], ["orders"], ["tests", "orders1"]),
        (["kafka/a.b/o.*"], ["kafka/a.b/orders", "kafka/a.b/o"], ["kafka/axb/orders", "orders"]),
    ],
)
def test_which_topics_are_meant(texts: list[str], meant: list[str], others: list[str]) -> None:
    for one in texts:
        check_topic(one)
    assert [topic for topic in (*meant, *others) if is_meant(topic, texts)] == meant


@pytest.mark.parametrize(
    "text", ["(", "[", "a{2}{3}*", "(?P<a>x)", "[a&&b]*", "[a[b]]*", r"x*\Z", r"\Qa\E", "kafka/.*/x", "kafka/a/("]
)
def test_what_python_and_spark_do_not_both_read_is_refused(text: str) -> None:
    assert is_pattern(text)
    with pytest.raises(ValueError, match=r"regular expression|only of the topic"):
        check_topic(text)


def test_a_state_says_of_which_topics_a_message_has_come() -> None:
    wanted = Definition(name="orders", topics=("orders", "decl"))
    state = TypedState("made")
    assert wanted.unmatched(state.sources) == ("orders", "decl")
    state = TypedState.from_json(state.moved({}, sources={"orders"}).as_json())
    assert wanted.unmatched(state.sources) == ("decl",)
    assert wanted.unmatched(state.moved({}, sources={"decl"}).moved({}).sources) == ()
    by_pattern = Definition(name="orders", topics=("orders-.*", "decl"))
    assert by_pattern.unmatched({"orders", "old-orders-eu", "decl"}) == ("orders-.*",)
    assert by_pattern.unmatched({"orders-eu", "decl"}) == ()


def test_a_state_of_an_older_version_says_nothing_of_topics() -> None:
    values = json.loads(TypedState("made").as_json())
    del values["sources"]
    state = TypedState.from_json(json.dumps(values)).moved({}, sources={"orders"})
    assert Definition(name="orders", topics=("orders", "decl")).unmatched(state.sources) == ()
