"""What others wrote, shown to people."""

from __future__ import annotations

import pytest

from sources.visible import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("order 4711, größe, 消息, 😀, a\u3000b", "order 4711, größe, 消息, 😀, a\u3000b"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\rb\tc\x00\x7f\x9b", r"a\rb\tc\x00\x7f\x9b"),
        ("fdp.\u202etxt\u2066", r"fdp.\u202etxt\u2066"),
        ("one\u2028two\x85three", r"one\u2028two\x85three"),
        ("half \ud800", r"half \ud800"),
    ],
)
def test_control_and_hidden_characters_are_escaped(text: str, shown: str) -> None:
    assert visible(text) == visible(text, lines=True) == shown


def test_only_who_asks_for_lines_has_more_than_one() -> None:
    assert visible("one\ntwo") == r"one\ntwo"
    assert visible("one\ntwo", lines=True) == "one\ntwo"
