"""Which of several rows of a key is the newest, against a model in plain Python."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.delta.files import FileWriter, new_name
from sinks.typed.columns import Column, table_spec
from sinks.typed.step.upsert import KeyedFiles, NewestRows, TouchedFiles, newest_of, normal_form
from sources.offsets import Offset

KEYS: dict[str, list[Any]] = {
    "string": ["a", "b", "", "é"],
    "bigint": [0, -1, 2**62],
    "double": [0.0, -0.0, 1.5],
    "boolean": [True, False],
    "decimal(10,2)": [Decimal("1.10"), Decimal("2.00")],
    "date": [dt.date(2026, 1, 1), dt.date(1, 1, 1)],
    "timestamp": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)],
}


def rows_of(kind: str, places: list[tuple[Any, str, int, int | None, int | None]]) -> pa.Table:
    """Rows of a typed table with the key `k`: of key, log, offset, index and second of storing."""
    spec = table_spec("t", (Column("k", "k", kind),))
    stored = [None if one[4] is None else dt.datetime.fromtimestamp(one[4], dt.UTC) for one in places]
    key, logs, offsets, indexes = ([one[at] for one in places] for at in range(4))
    given_ = {"k": key, "log_id": logs, "offset": offsets, "batch_index": indexes, "stored_at": stored}
    fields = spec.schema.remove_metadata()
    arrays = [pa.array(given_.get(one.name, [None] * len(places)), one.type) for one in fields]
    return pa.Table.from_arrays(arrays, schema=fields)


def model(places: list[tuple[Any, str, int, int | None, int | None]]) -> set[int]:
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


def test_what_is_no_number_is_one_key_whatever_its_bits() -> None:
    rows = rows_of("double", [(math.nan, "rocketmq/a", 1, None, 1), (-math.nan, "rocketmq/a", 2, None, 1)])
    assert newest_of(normal_form(rows), ["k"]).to_pylist() == [1]


@pytest.mark.parametrize("kind", KEYS)
def test_files_that_have_a_key_are_found_and_each_row_is_of_one_part(kind: str, tmp_path: Any) -> None:
    spec = table_spec("t", (Column("k", "k", kind),))
    one, other = KEYS[kind][0], KEYS[kind][-1]
    files = {
        name: rows_of(kind, [(key, "rocketmq/a", offset, None, 1) for offset, key in enumerate(keys, start)])
        for name, start, keys in (("old", 0, [one, one]), ("other", 10, [other]), ("new", 20, [one]))
    }
    names = {}
    for name, rows in files.items():
        with FileWriter(spec, str(tmp_path), new_name(Offset(0))) as writer:
            writer.write(rows.combine_chunks().to_batches()[0])
            names[name] = writer.finish().name
    read = KeyedFiles(spec, str(tmp_path), ("k",))
    assert list(TouchedFiles(read, (names["new"],))([[names["old"], names["other"]]])) == [names["old"]]
    each = {names[name]: rows.num_rows for name, rows in files.items()}
    (whole,) = NewestRows(read, each, 1)([0])
    parts = list(NewestRows(read, each, 3)(range(3)))
    for name in each:
        assert [sum(bits) for bits in zip(*(part[name].tolist() for part in parts), strict=True)] == whole[
            name
        ].tolist()
    assert [whole[names[name]].tolist() for name in ("old", "other", "new")] == [[0], [128], [128]]
