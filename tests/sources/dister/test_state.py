"""What entries do to the map: seed behaviours DI-43 to DI-47, scenarios 2, 8 and 10."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.dister.format.columns import KEY_VALUES, changes_of
from sources.errors import CorruptRecord
from sources.keyed_state import Changes
from sources.records import RECORD_SCHEMA

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
