"""Which of several rows of a key is the newest, against a model in plain Python."""

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.delta.files import FileWriter, new_name
from sinks.typed.columns import SOURCE_ORDER, Column, table_spec
from sinks.typed.formats.changes import placed
from sinks.typed.state import Emptied
from sinks.typed.step.keyed_files import KeyedFiles, Rows
from sinks.typed.step.newest import are_before, incomparable, newest_of, normal_form
from sinks.typed.step.upsert import ChangedRows, Changes, RowsWithKeys
from sources.offsets import Offset

LOG = "rocketmq/a"
DAY_MS = 86_400_000
KEYS: dict[str, list[Any]] = {
    "string": ["a", "b", "", "é"],
    "bigint": [0, -1, 2**62],
    "double": [0.0, -0.0, 1.5],
    "boolean": [True, False],
    "decimal(10,2)": [Decimal("1.10"), Decimal("2.00")],
    "date": [dt.date(2026, 1, 1), dt.date(1, 1, 1)],
    "timestamp": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)],
}

Place = tuple[Any, str, int, int | None, int | None]
"""Key, log, offset, index and second of storing."""


def rows_of(kind: str, places: list[Place]) -> pa.Table:
    """Rows of a typed table with the key `k`: of key, log, offset, index and second of storing."""
    spec = table_spec("t", (Column("k", "k", kind),))
    stored = [None if one[4] is None else dt.datetime.fromtimestamp(one[4], dt.UTC) for one in places]
    key, logs, offsets, indexes = ([one[at] for one in places] for at in range(4))
    given_ = {"k": key, "log_id": logs, "offset": offsets, "batch_index": indexes, "stored_at": stored}
    fields = spec.schema.remove_metadata()
    arrays = [pa.array(given_.get(one.name, [None] * len(places)), one.type) for one in fields]
    return pa.Table.from_arrays(arrays, schema=fields)


def ordered(*places: tuple[str, int, str | None]) -> pa.Table:
    """Rows of the key `k` of a table of change events, in one log: of key, offset and place at the source."""
    rows = rows_of("string", [(key, LOG, offset, None, 1) for key, offset, _ in places])
    return rows.append_column(SOURCE_ORDER.name, pa.array([order for *_, order in places], pa.string()))


def model(places: list[Place]) -> set[int]:
    """Of each log the row of a key with the greatest offset and index, of these the one stored last, by log."""

    def stored(at: int) -> tuple[int, str]:
        second = places[at][4]
        return -1 if second is None else second, places[at][1]

    def place(at: int) -> tuple[int, int]:
        _, _, offset, index, _ = places[at]
        return offset, -1 if index is None else index

    of_log: dict[tuple[Any, str], int] = {}
    for at, (key, log, *_) in enumerate(places):
        before = of_log.get((key, log))
        if before is None or place(at) > place(before):
            of_log[key, log] = at
    found: dict[Any, int] = {}
    for (key, _), at in of_log.items():
        before = found.get(key)
        if before is None or stored(at) > stored(before):
            found[key] = at
    return set(found.values())


@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data())
def test_the_newest_are_the_model_s(kind: str, data: st.DataObject) -> None:
    place = st.tuples(
        st.sampled_from(KEYS[kind]),
        st.sampled_from(["rocketmq/a", "rocketmq/b"]),
        st.integers(0, 5),
        st.none() | st.integers(0, 2),
        st.none() | st.integers(0, 3),
    )
    places = data.draw(st.lists(place, max_size=30, unique_by=lambda one: one[1:4]))
    found = newest_of(normal_form(rows_of(kind, places)), ["k"])
    assert set(found.to_pylist()) == model(places)


def place_of(number: int) -> str:
    """One of file, position and row."""
    return placed([(number // 20, 10), (number // 4 % 5, 19), (number % 4, 10)], 1_700_000_000_000)


@given(
    events=st.lists(st.tuples(st.sampled_from("abc-"), st.integers(0, 200)), max_size=12, unique_by=lambda one: one[1]),
    data=st.data(),
)
def test_in_whatever_order_and_steps_changes_come_the_source_decides(
    events: list[tuple[str, int]], data: st.DataObject
) -> None:
    """Each event is a row of a key, or empties the table, and comes once or twice."""
    again = data.draw(st.lists(st.sampled_from(events))) if events else []
    come = data.draw(st.permutations([*events, *again]))
    table, emptied, start = ordered(), None, 0
    while start < len(come):
        step = [*enumerate(come[start : start + data.draw(st.integers(1, 4))], start)]
        for offset, (key, number) in step:
            emptied = Emptied(LOG, offset, order=place_of(number)).newer(emptied) if key == "-" else emptied
        rows = [(key, offset, place_of(number)) for offset, (key, number) in step if key != "-"]
        table = pa.concat_tables([table, ordered(*rows)])
        assert incomparable(table, ["k"], emptied) is None
        table = table if emptied is None else table.filter(pc.invert(are_before(table, emptied)))
        table = table.take(newest_of(table, ["k"]))
        start += len(step)
    last = max((number for key, number in events if key == "-"), default=-1)
    newest = {key: place_of(number) for key, number in sorted(events, key=lambda one: one[1]) if number > last}
    assert sorted(zip(*(table[name].to_pylist() for name in ("k", SOURCE_ORDER.name)), strict=True)) == sorted(
        newest.items()
    )


def test_of_one_message_s_rows_the_last_is_the_newest() -> None:
    plain = rows_of("string", [(key, LOG, 7, None, 1) for key in "abacab"])
    assert sorted(newest_of(plain, ["k"]).to_pylist()) == [3, 4, 5]
    rows = ordered(*((key, 7, "9 1") for key in "abacab"))
    assert sorted(newest_of(rows, ["k"]).to_pylist()) == [3, 4, 5]


def test_a_row_of_a_bootstrap_is_older_than_any_with_a_place() -> None:
    rows = ordered(("a", 1, "5 1"), ("a", 2, None), ("b", 3, None), ("b", 4, None))
    assert sorted(newest_of(rows, ["k"]).to_pylist()) == [0, 3]
    assert incomparable(rows, ["k"], None) is None


def at(position: int, at_ms: int = DAY_MS, server: int | None = None) -> str:
    return placed([(position, 5)], at_ms, server)


@pytest.mark.parametrize(
    ("places", "emptied", "found"),
    [
        ([("a", 1, at(1)), ("a", 2, at(2, 0))], None, None),  # as long as a statement may have waited
        ([("a", 1, at(1, DAY_MS + 1)), ("a", 2, at(2, 0))], None, (1, at(1, DAY_MS + 1))),
        ([("a", 1, at(900)), ("a", 2, at(5, 3 * DAY_MS))], None, (0, at(5, 3 * DAY_MS))),  # it began anew
        ([("b", 1, at(900)), ("a", 2, at(5, 3 * DAY_MS))], None, None),  # another key
        ([("a", 1, at(900, server=1)), ("a", 2, at(5, server=2))], None, (0, at(5, server=2))),
        ([("b", 1, at(900, server=1)), ("a", 2, at(5, server=2))], None, None),
        ([("a", 1, at(1)), ("a", 2, at(2, server=2))], None, None),  # a snapshot does not know its server
        ([("a", 1, None), ("a", 2, at(5, server=2))], at(6, server=2), None),
        ([("a", 1, at(5, server=2))], at(6, server=1), (0, at(6, server=1))),
        ([("a", 1, None), ("b", 2, at(5, 3 * DAY_MS))], at(6), (1, at(6))),
        ([("b", 2, at(7, 3 * DAY_MS))], at(6), None),
        ([("a", 1, None)], None, None),
        ([], None, None),
    ],
)
def test_places_that_cannot_be_compared_are_told(
    places: list[tuple[str, int, str | None]], emptied: str | None, found: tuple[int, str] | None
) -> None:
    by = None if emptied is None else Emptied(LOG, 9, order=emptied)
    assert incomparable(ordered(*places), ["k"], by) == found


@given(
    st.lists(st.tuples(st.sampled_from([LOG, "rocketmq/b"]), st.integers(0, 3), st.none() | st.integers(0, 2),
                       st.none() | st.integers(0, 3)), max_size=20),
    st.integers(0, 3), st.integers(0, 2), st.none() | st.integers(0, 3),
)  # fmt: skip
def test_what_is_older_than_what_emptied_the_table(
    places: list[tuple[str, int, int | None, int | None]], offset: int, index: int, stored: int | None
) -> None:
    """In its own log by its place there, in others by the time."""
    emptied = Emptied(LOG, offset, index, None if stored is None else stored * 1_000_000)
    rows = rows_of("string", [("a", *one) for one in places])
    assert are_before(rows, emptied).to_pylist() == [
        (of, number or 0) < (offset, index)
        if log == LOG
        else stored is not None and (-1 if at is None else at) < stored
        for log, of, number, at in places
    ]


def test_the_source_says_what_is_older_than_what_emptied_the_table() -> None:
    rows = ordered(("a", 9, at(1)), ("b", 1, at(3)), ("c", 1, None))
    assert are_before(rows, Emptied(LOG, 5, order=at(2))).to_pylist() == [True, False, True]


def test_what_is_no_number_is_one_key_whatever_its_bits() -> None:
    rows = rows_of("double", [(math.nan, "rocketmq/a", 1, None, 1), (-math.nan, "rocketmq/a", 2, None, 1)])
    assert newest_of(normal_form(rows), ["k"]).to_pylist() == [1]


@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data())
def test_rows_with_a_key_are_found_in_all_files_and_the_older_ones_in_any_number_of_parts(
    kind: str, tmp_path_factory: Any, data: st.DataObject
) -> None:
    spec, keys = table_spec("t", (Column("k", "k", kind),)), st.sampled_from(KEYS[kind])
    folder, offsets = str(tmp_path_factory.mktemp("t")), iter(range(100))
    contents: dict[str, list[tuple[Any, int]]] = {}
    for groups in data.draw(
        st.lists(st.lists(st.lists(keys, min_size=1, max_size=3), min_size=1, max_size=3), max_size=3)
    ):
        with FileWriter(spec, folder, new_name(Offset(0))) as writer:
            rows: list[list[Place]] = [[(key, LOG, next(offsets), None, 1) for key in group] for group in groups]
            for group in rows:
                writer.write(rows_of(kind, group).combine_chunks().to_batches()[0])
            contents[writer.finish().name] = [(key, offset) for group in rows for key, _, offset, *_ in group]
    there = {name: len(rows) for name, rows in contents.items()}
    new = dict([there.popitem()]) if there else {}
    come = {key for name in new for key, _ in contents[name]}
    read = KeyedFiles(spec, folder, ("k",))
    found = dict(RowsWithKeys(read, new)([there])) if new else {}
    are_found = {name: [key in come for key, _ in contents[name]] for name in there}
    assert {name: one.are_in.tolist() for name, one in found.items()} == {
        name: bits for name, bits in are_found.items() if any(bits)
    }
    each = found | {name: Rows.all(records) for name, records in new.items()}
    last = {key: offset for rows in contents.values() for key, offset in rows if key in come}
    for parts in (1, 3) if each else ():
        by_part = list(ChangedRows(read, each, parts)(range(parts)))
        for name in each:
            gone = [part[name].gone.are_in for part in by_part]
            stay = [key not in come or last[key] == offset for key, offset in contents[name]]
            assert np.sum(gone, axis=0).tolist() == [0 if one else 1 for one in stay]  # each row is of one part
            assert (~Changes.together([part[name] for part in by_part]).gone.are_in).tolist() == stay


@pytest.mark.parametrize(
    ("later", "earlier"),
    [
        (Emptied(LOG, 9, stored_us=5), Emptied(LOG, 8, stored_us=7)),  # its master's clock was set back
        (Emptied(LOG, 9, 1), Emptied(LOG, 9, 0)),
        (Emptied("rocketmq/a", 1, stored_us=7), Emptied("rocketmq/b", 9, stored_us=5)),
        (Emptied("rocketmq/b", 1, stored_us=5), Emptied("rocketmq/a", 9, stored_us=5)),
        (Emptied(LOG, 8, order=at(2)), Emptied(LOG, 9, order=at(1))),
        (Emptied(LOG, 8, order=at(1)), Emptied(LOG, 9)),
    ],
)
def test_of_two_that_emptied_a_table_the_order_of_rows_says_which_is_later(later: Emptied, earlier: Emptied) -> None:
    assert later.newer(earlier) == earlier.newer(later) == later
