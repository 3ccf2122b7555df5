"""From when until when each change holds, against a model in plain Python: as of a moment the last one made by then."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.typed.columns import DELETED, SOURCE_ORDER, VALID_FROM, VALID_TO
from sinks.typed.formats.changes import placed
from sinks.typed.state import Emptied
from sinks.typed.step.validity import NEVER, validity_of

LOG, TYPE = "rocketmq/a", VALID_FROM.type
NULL = pa.scalar(None, TYPE)


class Event(NamedTuple):
    """A change of `key` at the second `at`, the `number`th at its source; without a value it deletes, `-` empties."""

    key: str
    number: int
    at: int
    value: str | None


def in_table(rows: list[dict[str, Any]], *, by_source: bool) -> pa.Table:
    stored = [row["stored_at"] for row in rows]
    columns = {
        "k": pa.array([row["k"] for row in rows], pa.string()),
        "v": pa.array([row["v"] for row in rows], pa.string()),
        "log_id": pa.array([row.get("log_id", LOG) for row in rows], pa.string()),
        "offset": pa.array([row["offset"] for row in rows], pa.int64()),
        "batch_index": pa.nulls(len(rows), pa.int32()),
        "stored_at": pa.array(stored, TYPE),
        VALID_FROM.name: pa.array([row["from"] for row in rows], TYPE),
        VALID_TO.name: pa.array([row["to"] for row in rows], TYPE),
        DELETED.name: pa.array([row["v"] is None for row in rows], pa.bool_()),
    }
    if by_source:
        columns[SOURCE_ORDER.name] = pa.array([row["order"] for row in rows], pa.string())
    return pa.table(columns)


def brought(there: list[dict[str, Any]], come: list[dict[str, Any]], emptied: list[Emptied], *, is_emptied: bool,
            by_source: bool) -> list[dict[str, Any]]:  # fmt: skip
    """The rows after a step that changes only those with the keys of `come`, unless the table `is_emptied`."""
    keys = {row["k"] for row in come}
    rows = [row for row in [*there, *come] if is_emptied or row["k"] in keys]
    others = [row for row in there if not is_emptied and row["k"] not in keys]
    found = validity_of(in_table(rows, by_source=by_source), ["k"], emptied, lambda of: of["v"].to_pylist())
    for at, end in zip(found.ended.tolist(), found.ends.tolist(), strict=True):
        rows[at] = {**rows[at], "to": None if end == NEVER else end}
    return others + [row for at, row in enumerate(rows) if at not in {*found.gone.tolist()}]


def table_of(events: Iterable[Event], cuts: list[int], *, by_source: bool) -> list[dict[str, Any]]:
    """The rows when `events` have come in steps of these sizes."""
    come, rows, emptied, start = [*events], list[dict[str, Any]](), list[Emptied](), 0
    for size in [*cuts, len(come)]:
        step = [*enumerate(come[start : start + size], start)]
        new, before = list[dict[str, Any]](), len(emptied)
        for offset, (key, number, at, value) in step:
            order = placed([(number, 10)], 1_700_000_000_000) if by_source else None
            if key == "-":
                emptied.append(Emptied(LOG, offset, stored_us=offset, order=order, at_us=at))
            else:
                to = at if value is None else None
                new.append(
                    {"k": key, "v": value, "offset": offset, "stored_at": offset, "from": at, "to": to, "order": order}
                )
        rows = brought(rows, new, emptied, is_emptied=len(emptied) > before, by_source=by_source)
        start += size
    return rows


def said(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["k"], row["from"], str(row["to"]), str(row["order"]), str(row["v"])) for row in rows)


def as_of(rows: list[dict[str, Any]], moment: int) -> dict[str, str]:
    """What the query of docs/change-tables.md finds; no key twice."""
    found = [row for row in rows if row["from"] <= moment and (row["to"] is None or moment < row["to"])]
    assert len({row["k"] for row in found}) == len(found)
    return {row["k"]: row["v"] for row in found}


def stood(events: list[Event], moment: int) -> dict[str, str]:
    """What the source had, of changes in their order."""
    table: dict[str, str] = {}
    for key, _, at, value in events:
        if at <= moment and key == "-":
            table.clear()
        elif at <= moment:
            table |= {key: value or ""}
            if value is None:
                del table[key]
    return table


EVENTS = st.lists(
    st.builds(
        Event, st.sampled_from("aabbcd-"), st.integers(0, 99), st.integers(0, 12), st.none() | st.sampled_from("xyz")
    ),
    max_size=14,
    unique_by=lambda one: one.number,
)
CUTS = st.lists(st.integers(0, 5), max_size=6)


@given(EVENTS, CUTS, st.data())
def test_in_whatever_order_and_steps_changes_come_the_source_decides(
    events: list[Event], cuts: list[int], data: st.DataObject
) -> None:
    """Each comes once or twice, in any order; several have one time, and some an earlier one than those before them."""
    in_order = sorted(events, key=lambda one: one.number)
    again = data.draw(st.lists(st.sampled_from(events))) if events else []
    rows = table_of(data.draw(st.permutations([*events, *again])), cuts, by_source=True)
    assert said(rows) == said(table_of(in_order, [], by_source=True))
    assert len(rows) == sum(one.key != "-" for one in events)
    assert all(row["to"] is None or row["from"] <= row["to"] for row in rows)
    assert all(as_of(rows, moment) == stood(in_order, moment) for moment in range(14))
    assert {row["k"]: row["v"] for row in rows if row["to"] is None} == stood(in_order, 99)


@given(EVENTS, CUTS, st.integers(0, 14))
def test_by_the_log_steps_and_a_replay_make_no_difference(events: list[Event], cuts: list[int], start: int) -> None:
    """A producer that sends the last ones again, as after a fail-over, tells nothing new when it is done."""
    rows = table_of([*events, *events[start:]], cuts, by_source=False)
    assert said(rows) == said(table_of([*events, *events[start:]], [], by_source=False))
    assert all(as_of(rows, moment) == stood([*events, *events[start:]], moment) for moment in range(14))
    distinct = {(one.key, one.at, one.value) for one in events if one.key != "-"}
    assert len(rows) == len(distinct)


@pytest.mark.parametrize(
    ("stored", "open_"),
    [
        ([("a", 1, 10), ("a", 2, 5), ("b", 1, 7)], ("b", 1)),  # the clock of a's master was set back
        ([("a", 1, 10), ("b", 1, 7)], ("a", 1)),
        ([("a", 1, 7), ("b", 1, 7), ("a", 2, 7)], ("b", 1)),
        ([("a", 1, None), ("b", 1, 1)], ("b", 1)),
    ],
)
def test_of_several_logs_the_last_stored_stands(
    stored: list[tuple[str, int, int | None]], open_: tuple[str, int]
) -> None:
    """As in a table that has only the newest row (`test_newest.py`)."""
    rows = [{"k": "k", "v": f"{number}", "log_id": log, "offset": offset, "stored_at": at, "from": 0, "to": None}
            for number, (log, offset, at) in enumerate(stored)]  # fmt: skip
    found = brought([], rows, [], is_emptied=False, by_source=False)
    assert [(row["log_id"], row["offset"]) for row in found if row["to"] is None] == [open_]
