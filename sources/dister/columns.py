"""Entries as rows of RECORD_SCHEMA, and rows back to lines byte for byte. Arrow, no I/O.

====================  ==================================================================================
offset, size          the range [id of the entry before + 1, id + 1); for the log's first entry from its start
kind                  message
topic                 set, remove, or act <n>
queue_id              number of the batch file
queue_offset          the id
keys                  the keys that it sets or removes; null for another act
body                  its items, JSON as stored
flag                  act
stored_properties     the line up to the items, if dister would have written it differently; else null
====================  ==================================================================================

Everything else is null, because dister has nothing like it.

The map that dister serves: a set sets every key of its object; a remove removes every key of its list, whether or not
it is there; any other act does nothing. What comes later in the log, or in an entry, wins (`saveLogEntryToVar`). A
removed key, even one that never existed, is kept with the id of the entry that removed it: an older entry that comes in
later must not restore it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sources.dister.entries import ACT_REMOVE, ACT_SET, Entry, canonical_head, decode_items
from sources.dister.layout import batch_number
from sources.dister.line_walk import Sound
from sources.errors import CorruptRecord
from sources.records import MESSAGE, RECORD_SCHEMA, Changes, KeyChange, KeyedState

COLUMNS: Final = ("offset", "size", "flag", "body", "stored_properties")
"""The columns from which lines are put together."""

_CHANGED_BY: Final = ("offset", "size", "flag", "body")
_TOPICS: Final = {ACT_SET: "set", ACT_REMOVE: "remove"}


def encode(group: Sequence[Sound]) -> pa.RecordBatch:
    """Return one row per entry, in order."""
    entries = [piece.entry for piece in group]
    filled = {
        "offset": [piece.start for piece in group],
        "size": [piece.covered.size for piece in group],
        "kind": [MESSAGE] * len(group),
        "topic": [_TOPICS.get(entry.act, f"act {entry.act}") for entry in entries],
        "queue_id": [batch_number(entry.id) for entry in entries],
        "queue_offset": [entry.id for entry in entries],
        "keys": [entry.keys for entry in entries],
        "body": [entry.items_json for entry in entries],
        "flag": [entry.act for entry in entries],
        "stored_properties": list(map(_stored_head, entries)),
    }
    columns = [
        pa.array(filled[field.name], field.type) if field.name in filled else pa.nulls(len(group), field.type)
        for field in RECORD_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def restore(records: pa.RecordBatch) -> bytes:
    """Return the lines of `records`, which have at least COLUMNS: the inverse of `encode`.

    Raises CorruptRecord for a row without id, act or items.
    """
    body = records.column("body").cast(pa.large_binary())
    lines = pc.binary_join_element_wise(_heads(records), body, pa.scalar(b"\n", pa.large_binary()), _NOTHING)
    if lines.null_count:
        first = records.slice(pc.index(lines.is_null(), True).as_py(), 1)
        raise CorruptRecord(
            "the row lacks a value that its line needs",
            offset=first.column("offset")[0].as_py(),
            expected="size, flag and body",
            found="null",
        )
    return b"".join(lines.to_pylist())


def lengths(records: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the size of each line and its newline, of `records` with at least COLUMNS; 0 if `restore` would raise."""
    bytes_of = pc.add(pc.binary_length(_heads(records)), pc.binary_length(records.column("body")))
    found: npt.NDArray[np.int64] = pc.add(bytes_of, 1).cast(pa.int64()).fill_null(0).to_numpy()
    return found


_NOTHING: Final = pa.scalar(b"", pa.large_binary())


def _heads(records: pa.RecordBatch) -> pa.Array:
    ids = pc.subtract(pc.add(records.column("offset"), records.column("size")), 1)
    acts = records.column("flag")
    canonical = pc.binary_join_element_wise(ids.cast(pa.string()), acts.cast(pa.string()), "", ",")
    return pc.coalesce(records.column("stored_properties"), canonical.cast(pa.binary())).cast(pa.large_binary())


def _stored_head(entry: Entry) -> bytes | None:
    head = entry.head
    return None if head == canonical_head(entry.id, entry.act) else head


def changes_of(records: pa.RecordBatch) -> Changes:
    """Return the newest change of each key in `records`, in log order, which have at least the columns of `KEY_VALUES`.

    Raises CorruptRecord at the offset of a row that is not an entry.
    """
    found: Changes = {}
    for offset, size, act, body in zip(*(records.column(name).to_pylist() for name in _CHANGED_BY), strict=True):
        if act in (ACT_SET, ACT_REMOVE):
            found |= _changes(offset, size, act, body)
    return found


def _changes(offset: int, size: int, act: int, body: bytes | None) -> Changes:
    try:
        items = decode_items(act, b"" if body is None else body)
    except CorruptRecord as error:
        raise CorruptRecord(error.problem, offset=offset, expected=error.expected, found=error.found) from error
    entry_id = offset + size - 1
    if isinstance(items, dict):
        return {key: KeyChange(entry_id, value) for key, value in items.items()}
    return {key: KeyChange(entry_id, None) for key in items or ()}


KEY_VALUES: Final = KeyedState(made_from=_CHANGED_BY, changes=changes_of)
