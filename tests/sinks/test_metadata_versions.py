"""Versions against a dumb model: the list of every state there was."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sinks.history.metadata_versions import Row, compare
from sources.metadata import MetadataKind

KIND = MetadataKind(
    "lamps",
    "a kind with everything",
    key=(pa.field("street", pa.string()), pa.field("number", pa.int32())),
    compared=(pa.field("colour", pa.string()),),
    noted=(pa.field("seen_by", pa.string()),),
)
START = datetime(2024, 2, 29, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

State = dict[tuple[str, int], tuple[str | None, str]]
states: st.SearchStrategy[list[State]] = st.lists(
    st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.integers(0, 2)),
        st.tuples(st.sampled_from(["red", "green", None]), st.sampled_from("xyz")),
    ),
    min_size=1,
    max_size=12,
)


def items(state: State) -> list[dict[str, Any]]:
    return [
        {"street": street, "number": number, "colour": colour, "seen_by": seen_by}
        for (street, number), (colour, seen_by) in state.items()
    ]


def versions_after(history: list[State]) -> tuple[list[Row], list[Row], list[bool]]:
    """What is current, what was closed, and which fetches changed anything."""
    current: list[Row] = []
    closed: list[Row] = []
    changed = []
    for number, state in enumerate(history):
        change = compare(KIND, current, items(state), START + number * MINUTE)
        changed.append(change is not None)
        if change is not None:
            current = list(change.current)
            closed += change.closed
    return current, closed, changed


def colours_at(versions: list[Row], at: datetime) -> list[tuple[str, int, str | None]]:
    """One entry a version, so that an overlap would show."""
    return sorted(
        (row["street"], row["number"], row["colour"])
        for row in versions
        if row["valid_from"] <= at and (row["valid_to"] is None or at < row["valid_to"])
    )


@given(states)
def test_at_each_fetch_the_versions_are_the_state(history: list[State]) -> None:
    current, closed, _ = versions_after(history)
    for number, state in enumerate(history):
        expected = sorted((*key, colour) for key, (colour, _) in state.items())
        assert colours_at([*current, *closed], START + number * MINUTE) == expected


@given(states)
def test_a_fetch_changes_something_exactly_when_a_compared_column_did(history: list[State]) -> None:
    _, _, changed = versions_after(history)
    plain = [{key: colour for key, (colour, _) in state.items()} for state in history]
    assert changed == [now != before for before, now in zip([{}, *plain], plain, strict=False)]


def test_what_is_only_noted_stays_as_it_was_first_seen() -> None:
    current, closed, changed = versions_after([{("a", 1): ("red", "x")}, {("a", 1): ("red", "y")}])
    assert changed == [True, False]
    assert [row["seen_by"] for row in current] == ["x"]
    assert closed == []


def test_a_kind_without_a_key_has_one_item() -> None:
    single = MetadataKind("mood", "one for all", key=(), compared=(pa.field("mood", pa.string()),))
    first = compare(single, [], [{"mood": "good"}], START)
    assert first is not None
    second = compare(single, first.current, [{"mood": "bad"}], START + MINUTE)
    assert second is not None
    assert [row["mood"] for row in second.current] == ["bad"]
    assert [(row["mood"], row["valid_to"]) for row in second.closed] == [("good", START + MINUTE)]


def test_a_lasting_item_stays_until_another_one_is_there() -> None:
    """Scenario 49: whoever tells leaves it out, and that says nothing of it."""
    nodes = MetadataKind(
        "nodes",
        "one of them leads",
        key=(pa.field("id", pa.string()),),
        compared=(pa.field("raft", pa.int32()),),
        lasting=("raft", 2),
    )
    current: Sequence[Row] = []
    told: list[tuple[dict[str, int], dict[str, int]]] = [
        ({"a": 2, "b": 0}, {"a": 2, "b": 0}),
        ({"b": 0, "c": 0}, {"a": 2, "b": 0, "c": 0}),
        ({}, {"a": 2}),
        ({"a": 0}, {"a": 0}),  # listed, and it leads no more
        ({"b": 2}, {"b": 2}),
        ({"c": 2}, {"c": 2}),  # another one leads, so nothing is left out
    ]
    for number, (listed, expected) in enumerate(told):
        found = [{"id": key, "raft": raft} for key, raft in listed.items()]
        change = compare(nodes, current, found, START + number * MINUTE)
        assert change is not None
        current = change.current
        assert {row["id"]: row["raft"] for row in current} == expected
    assert compare(nodes, current, [], START + 9 * MINUTE) is None
