"""Names and patterns in a typed table's ``from``."""

from __future__ import annotations

import pytest

from sinks.typed.definition import check_topic, expression, is_meant, is_pattern


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


def test_the_part_before_the_topic_is_taken_by_its_letters() -> None:
    assert expression("kafka/a.b/o-.*") == r"kafka/a\.b/(?:o-.*)"
    assert expression("o|p*") == "(?:o|p*)"
