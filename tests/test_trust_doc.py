"""The operator's page says of each condition what the code says of it."""

from pathlib import Path

import pytest

from sources.loss import Condition

DOCUMENT = Path(__file__).parents[1] / "docs" / "trust.md"


@pytest.mark.parametrize("condition", Condition, ids=lambda one: one.value)
def test_each_condition_is_explained_in_the_same_words(condition: Condition) -> None:
    assert f"| `{condition.value}` | {condition.cause} | {condition.hint} |" in DOCUMENT.read_text()


@pytest.mark.parametrize("condition", Condition, ids=lambda one: one.value)
def test_what_is_another_for_topics_is_said_in_the_same_words(condition: Condition) -> None:
    line, hint = f"| `{condition.value}` |", condition.hint_for("kafka")
    assert (f"{line} {hint} |" in DOCUMENT.read_text()) == (hint != condition.hint)
