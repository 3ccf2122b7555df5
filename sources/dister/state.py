"""The effect of a dister log's entries on the map that dister serves. Pure.

A set sets every key of its object; a remove removes every key of its list, whether or not it is there; any other act
does nothing. What comes later in the log, or in an entry, wins (`saveLogEntryToVar`). A removed key, even one that
never existed, is kept with the id of the entry that removed it: an older entry that comes in later must not restore it.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from sources.dister.format.entries import ACT_REMOVE, ACT_SET, decode_items
from sources.errors import CorruptRecord
from sources.keyed_state import Changes, KeyChange, KeyedState

_COLUMNS: Final = ("offset", "size", "flag", "body")


def changes_of(records: pa.RecordBatch) -> Changes:
    """Return the newest change of each key in `records`, in log order, which have at least the columns of `KEY_VALUES`.

    Raises CorruptRecord at the offset of a row that is not an entry.
    """
    found: Changes = {}
    for offset, size, act, body in zip(*(records.column(name).to_pylist() for name in _COLUMNS), strict=True):
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


KEY_VALUES: Final = KeyedState(made_from=_COLUMNS, changes=changes_of)
