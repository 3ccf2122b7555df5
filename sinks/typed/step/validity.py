"""From when until when each change of a key holds, in a table with a row for each change. Pure.

The changes of a key have an order (`newest.py`), and each has its time. As of a moment the last one in this order holds
of those whose time has come; none, if it is a deletion, or if the table was emptied after it. So a change holds from
its own time until the earliest time of all that come after it in the order. If that is not later than its own time, it
holds at no moment: it ends when it begins, as a deletion always does. So no two rows of a key overlap, at most the last
one has no end, and both times depend on the changes alone, not on how and when they came.

Changes of a key with the same time, the same place at their source and the same values are one that came several times:
the last in the order stays, because another may lie between them (x, y, x in one second).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinks.typed.columns import DELETED, SOURCE_ORDER, VALID_FROM, VALID_TO
from sinks.typed.state import Emptied
from sinks.typed.step.newest import are_before

NEVER: Final = np.iinfo(np.int64).max
"""The end of what has none, among numbers."""
_LEAST: Final = np.iinfo(np.int64).min
_AT: Final = "at row"  # no column can have such a name


@dataclass(frozen=True, slots=True)
class Validity:
    """What differs from what rows say: the numbers of those that are `gone`, and of others with another end.

    `ends` are those, in microseconds since 1970, for each of `ended`.
    """

    gone: np.ndarray
    ended: np.ndarray
    ends: np.ndarray


def validity_of(
    rows: pa.Table,
    key: Sequence[str],
    emptied: Sequence[Emptied],
    values_of: Callable[[pa.Table], Sequence[object]],
) -> Validity:
    """When `rows` end, which are all that their keys have. `values_of` gives something equal for rows of equal values.

    Of rows that nothing else tells apart the last in `rows` is the latest.
    """
    numbers, of_key = _in_order(rows, key)
    rows = rows.take(numbers)
    starts = _micros(rows[VALID_FROM.name])
    stays = ~_are_repeated(rows, of_key, starts, values_of)
    ends = np.full(len(starts), NEVER)
    ends[stays] = _least_behind(starts[stays], of_key[stays])
    for one in emptied:
        is_before = are_before(rows, one).to_numpy()
        ends[is_before] = np.minimum(ends[is_before], one.at_us or 0)
    if DELETED.name in rows.column_names:
        ends[pc.fill_null(rows[DELETED.name], fill_value=False).to_numpy()] = _LEAST
    ends = np.maximum(ends, starts)
    is_other = stays & (ends != _micros(rows[VALID_TO.name], NEVER))
    return Validity(numbers[~stays], numbers[is_other], ends[is_other])


def _in_order(rows: pa.Table, key: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of rows by key, each key's in its order; and for each of them a number of its key.

    Of several logs the one counts whose row was stored later. In one log a row counts as stored no later than those
    behind it, whatever the clock of its master said.
    """
    placed = pa.table({name: rows[name] for name in dict.fromkeys((*key, "log_id", "offset"))})
    placed = placed.append_column("batch_index", pc.fill_null(rows["batch_index"].cast(pa.int64()), _LEAST))
    by_source = [SOURCE_ORDER.name] if SOURCE_ORDER.name in rows.column_names else []
    for name in by_source:
        placed = placed.append_column(name, pc.fill_null(rows[name], ""))
    placed = placed.append_column(_AT, pa.array(np.arange(rows.num_rows)))
    in_log = ("offset", "batch_index", _AT)
    by_log = _sorted(placed, (*key, *by_source, "log_id", *in_log))
    stored = _micros(rows["stored_at"], _LEAST)[by_log[_AT].to_numpy()]
    stored = np.minimum(stored, _least_behind(stored, _numbered(by_log, (*key, *by_source, "log_id"))))
    ordered = by_log.append_column("stored_at", pa.array(stored))
    ordered = _sorted(ordered, (*key, *by_source, "stored_at", "log_id", *in_log))
    return ordered[_AT].to_numpy(), _numbered(ordered, key)


def _sorted(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    return rows.take(pc.sort_indices(rows, [(name, "ascending") for name in dict.fromkeys(columns)]))


def _numbered(rows: pa.Table, columns: Sequence[str]) -> np.ndarray:
    """The number of each row's group: rows with the same values in `columns`, which are next to each other."""
    begins = np.zeros(rows.num_rows, dtype=np.int64)
    for name in columns:
        column = rows[name]
        begins[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy()
    return np.cumsum(begins)


def _least_behind(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The least of the values behind each one in its group; NEVER behind the last. Groups are numbered in order."""
    found = np.full(len(values), NEVER)
    if len(values):
        sorts, ranks = np.unique(values, return_inverse=True)
        least = np.minimum.accumulate((group * len(values) + ranks)[::-1])[::-1]  # a group begins below those behind it
        is_same = group[1:] == group[:-1]
        found[:-1][is_same] = sorts[least[1:][is_same] % len(values)]
    return found


def _are_repeated(
    rows: pa.Table, of_key: np.ndarray, starts: np.ndarray, values_of: Callable[[pa.Table], Sequence[object]]
) -> np.ndarray:
    """Whether each row is one that comes again behind it."""
    place = np.zeros(rows.num_rows, dtype=np.int64)
    if SOURCE_ORDER.name in rows.column_names:
        place = pc.fill_null(rows[SOURCE_ORDER.name], "").combine_chunks().dictionary_encode().indices.to_numpy()
    said = np.array([of_key, starts, place])
    order = np.lexsort(said)
    before, after = order[:-1], order[1:]
    are_alike = (said[:, before] == said[:, after]).all(axis=0)
    twins = np.union1d(before[are_alike], after[are_alike])
    found = np.zeros(rows.num_rows, dtype=bool)
    if len(twins):
        values = values_of(rows.take(twins))
        last = {(*said[:, at].tolist(), of): at for at, of in zip(twins, values, strict=True)}
        found[twins] = True
        found[[*last.values()]] = False
    return found


def _micros(times: pa.ChunkedArray, of_null: int = 0) -> np.ndarray:
    found: np.ndarray = pc.fill_null(times.cast(pa.int64()), of_null).to_numpy()
    return found
