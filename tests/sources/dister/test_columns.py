"""Entries as rows, and back."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.dister import columns
from sources.dister.columns import KEY_VALUES, changes_of
from sources.dister.entries import decode_line
from sources.dister.layout import BatchFile, batch_number
from sources.dister.line_walk import Line, Sound
from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.records import RECORD_SCHEMA, Changes

LINES = [
    b'10007,300,{"b":"\\u003cx\\u003e","a":"\xc3\xa9"}',
    b'20001,310,["a","none"]',
    b"1000020001,999,[1]",
    b'001000030001,300, {"a":"3"} ',
    b"1000040001,300,{}",
]


def group(lines: list[bytes]) -> list[Sound]:
    end, found = Offset(0), []
    for text in lines:
        entry = decode_line(text)
        batch = BatchFile(batch_number(entry.id), Path("/l"))
        found.append(Sound(end, entry, Line(batch, 0, text, is_whole=True)))
        end = Offset(entry.id + 1)
    return found


def test_what_the_columns_of_an_entry_say() -> None:
    records = columns.encode(group(LINES))

    assert records.schema == RECORD_SCHEMA
    told = records.select(
        ["offset", "size", "kind", "topic", "queue_id", "queue_offset", "keys", "body", "flag", "stored_properties"]
    )
    assert [tuple(row.values()) for row in told.to_pylist()] == [
        (0, 10008, "message", "set", 0, 10007, ["b", "a"], LINES[0][10:], 300, None),
        (10008, 9994, "message", "remove", 0, 20001, ["a", "none"], b'["a","none"]', 310, None),
        (20002, 1_000_000_000, "message", "act 999", 1, 1_000_020_001, None, b"[1]", 999, None),
        (1_000_020_002, 10_000, "message", "set", 1, 1_000_030_001, ["a"], b' {"a":"3"} ', 300, b"001000030001,300,"),
        (1_000_030_002, 10_000, "message", "set", 1, 1_000_040_001, [], b"{}", 300, None),
    ]
    others = [name for name in RECORD_SCHEMA.names if name not in told.schema.names]
    assert all(records.column(name).null_count == len(LINES) for name in others)


@pytest.mark.parametrize("name", ["size", "flag", "body"])
def test_a_row_that_lacks_something_is_corrupt(name: str) -> None:
    rows = columns.encode(group(LINES)).to_pylist()
    rows[1][name] = None
    records = pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)
    with pytest.raises(CorruptRecord, match="lacks a value that its line needs") as raised:
        columns.restore(records)
    assert raised.value.offset == 10008
    assert columns.lengths(records).tolist() == [0 if at == 1 else len(line) + 1 for at, line in enumerate(LINES)]


# what entries do to the map: seed behaviours DI-43 to DI-47, scenarios 2, 8 and 10


SET, REMOVE, UNKNOWN = 300, 310, 999
SCHEMA = pa.schema([RECORD_SCHEMA.field(name) for name in KEY_VALUES.made_from]).remove_metadata()

Act = tuple[int, Any]


def rows(*acts: Act) -> pa.RecordBatch:
    """Entries with the ids 10007, 20007, …: each continues the one before, the first the empty log."""
    ids = [index * 10_000 + 7 for index in range(len(acts) + 1)]
    ids[0] = -1
    values = [
        {"offset": before + 1, "size": entry_id - before, "flag": act, "body": json.dumps(items).encode()}
        for before, entry_id, (act, items) in zip(ids, ids[1:], acts, strict=False)
    ]
    return pa.RecordBatch.from_pylist(values, schema=SCHEMA)


def live(changes: Changes) -> dict[str, str]:
    return {key: change.value for key, change in changes.items() if change.value is not None}


@pytest.mark.parametrize(
    ("act", "items"), [(SET, ["a"]), (SET, {"a": 1}), (SET, None), (REMOVE, {"a": "1"}), (REMOVE, [1])]
)
def test_a_row_that_is_no_entry_is_named(act: int, items: Any) -> None:
    with pytest.raises(CorruptRecord) as caught:
        changes_of(rows((SET, {"a": "1"}), (act, items)))
    assert caught.value.offset == 10008


ACTS = st.one_of(
    st.tuples(st.just(SET), st.dictionaries(st.sampled_from("abcde"), st.text(max_size=3), max_size=3)),
    st.tuples(st.just(REMOVE), st.lists(st.sampled_from("abcde"), max_size=3)),
    st.tuples(st.sampled_from((0, UNKNOWN)), st.dictionaries(st.sampled_from("abcde"), st.text(max_size=3))),
)


def replayed(acts: list[Act]) -> dict[str, str]:
    """The map as dister makes it, entry by entry."""
    data: dict[str, str] = {}
    for act, items in acts:
        if act == SET:
            data.update(items)
        elif act == REMOVE:
            for key in items:
                data.pop(key, None)
    return data


@given(st.lists(ACTS, max_size=30), st.lists(st.integers(0, 30), max_size=4))
def test_the_map_is_a_replay_of_the_log_wherever_batches_are_cut(acts: list[Act], cuts: list[int]) -> None:
    """DI-47."""
    batch, changes = rows(*acts), Changes()
    edges = sorted({0, len(acts), *(cut for cut in cuts if cut < len(acts))})
    for start, end in pairwise(edges):
        changes |= changes_of(batch.slice(start, end - start))
    assert live(changes) == replayed(acts)
