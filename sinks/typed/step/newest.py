"""Which of several rows of a key is the newest, and which are older than what has emptied the table. Pure.

In one log the message with the higher offset is the newer one, whatever its queue; of one message's rows the last. Of
messages in several logs the one that was stored later is newer; if both were stored at the same moment, the one in the
log with the greater id.

Where rows have their place at their source (`SOURCE_ORDER`), that decides, and only between equal ones the log does. A
row without a place, of a bootstrap, is older than any that has one. Positions of two servers say nothing of each other,
nor do those of a server that has begun anew: taking the greater one for the newer would leave rows as they were, and
nobody would notice. So such rows are told apart: their servers differ, or their times contradict their positions. Times
do so a little at any server, because a change is later in its log, but has the time at which its statement began.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from sinks.typed.columns import SOURCE_ORDER
from sinks.typed.state import Emptied

_LEAST: Final = -(1 << 63)
_ROW: Final = "of row"  # no column can have such a name
_PARTS: Final = r"^\S+ (?P<at_ms>[0-9]+) ?(?P<server>[0-9]*)$"
"""Of a place at the source: see `sinks/typed/formats/changes.py`."""
_LONGEST_MS: Final = 86_400_000
"""No statement runs for longer before its change is in the log of its server."""


def newest_of(rows: pa.Table, key: Sequence[str]) -> pa.Array:
    """The numbers of the rows that are the newest of their key."""
    placed = rows.drop_columns(["batch_index", "stored_at"])
    for name in ("batch_index", "stored_at"):  # nulls come first
        placed = placed.append_column(name, pc.fill_null(rows[name].cast(pa.int64()), _LEAST))
    order = [SOURCE_ORDER.name] if SOURCE_ORDER.name in rows.column_names else []
    for name in order:
        placed = placed.drop_columns([name]).append_column(name, pc.fill_null(rows[name], ""))
    in_log = _last(placed, ("offset", "batch_index"), (*key, "log_id", *order))
    return in_log.take(_last(placed.take(in_log), (*order, "stored_at", "log_id"), key))


def _last(rows: pa.Table, order: Sequence[str], of: Sequence[str]) -> pa.Array:
    """The numbers of the rows that come last in `order` among those with the same values in the columns `of`.

    Of equal ones it is the last in `rows`: the sort is a stable one.
    """
    numbers = pc.sort_indices(rows, [(one, "ascending") for one in order])
    columns = rows.select(list(dict.fromkeys(of))).take(numbers)
    columns = columns.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
    last = columns.group_by(list(dict.fromkeys(of)), use_threads=False).aggregate([(_ROW, "max")])
    return numbers.take(last[f"{_ROW}_max"].combine_chunks())


def are_before(rows: pa.Table, emptied: Emptied) -> pa.ChunkedArray:
    """Whether each row is older than what has emptied the table."""
    if SOURCE_ORDER.name in rows.column_names:
        return pc.less(pc.fill_null(rows[SOURCE_ORDER.name], ""), emptied.order or "")
    offset, index = rows["offset"], pc.fill_null(rows["batch_index"], 0)
    at_offset = pc.and_(pc.equal(offset, emptied.offset), pc.less(index, emptied.index))
    in_log = pc.or_(pc.less(offset, emptied.offset), at_offset)
    stored_us = pc.fill_null(rows["stored_at"].cast(pa.int64()), _LEAST)
    in_other = pc.less(stored_us, _LEAST if emptied.stored_us is None else emptied.stored_us)
    return pc.if_else(pc.equal(rows["log_id"], emptied.log_id), in_log, in_other)


def incomparable(rows: pa.Table, key: Sequence[str], emptied: Emptied | None) -> tuple[int, str] | None:
    """The number of a row whose place at the source cannot be compared with that of another change of its key, and the
    place of the other."""
    if SOURCE_ORDER.name not in rows.column_names:
        return None
    numbers = np.flatnonzero(rows[SOURCE_ORDER.name].is_valid())
    placed = rows.take(numbers)
    orders = placed[SOURCE_ORDER.name]
    at_ms, servers = _times_and_servers(orders)
    if emptied is not None and emptied.order is not None:
        (emptied_ms,), of_emptied = _times_and_servers(pa.chunked_array([[emptied.order]]))
        is_before = pc.less(orders, emptied.order).to_numpy()
        wrong = np.flatnonzero(is_before & (_differ(servers, of_emptied) | (at_ms - emptied_ms > _LONGEST_MS)))
        if len(wrong):
            return int(numbers[wrong[0]]), emptied.order
    times = at_ms[pc.sort_indices(placed, [(SOURCE_ORDER.name, "ascending")])]
    are_in_order = not (np.maximum.accumulate(times) - times > _LONGEST_MS).any()
    if are_in_order and len({*pc.unique(servers).to_pylist()} - {""}) <= 1:  # so it is seen soon, and usually
        return None
    columns = [*dict.fromkeys(key)]
    by_key = pc.sort_indices(placed, [(one, "ascending") for one in (*columns, SOURCE_ORDER.name)])
    before, after = by_key[:-1], by_key[1:]
    is_wrong = _differ(servers.take(after), servers.take(before)) | (at_ms[before] - at_ms[after] > _LONGEST_MS)
    for name in columns:
        is_wrong &= pc.equal(placed[name].take(after), placed[name].take(before)).to_numpy()
    wrong = np.flatnonzero(is_wrong)
    if not len(wrong):
        return None
    return int(numbers[after[int(wrong[0])].as_py()]), orders[before[int(wrong[0])].as_py()].as_py()


def _times_and_servers(orders: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    parts = pc.extract_regex(orders, _PARTS).combine_chunks()
    return parts.field("at_ms").cast(pa.int64()).to_numpy(), parts.field("server")


def _differ(some: pa.Array, others: pa.Array) -> np.ndarray:
    """Whether two servers are known, and differ; `others` may be one alone."""
    other = others[0] if len(others) == 1 else others
    known = pc.and_(pc.not_equal(some, ""), pc.not_equal(other, ""))
    found: np.ndarray = pc.and_(known, pc.not_equal(some, other)).to_numpy(zero_copy_only=False)
    return found


def normal_form(rows: pa.Table) -> pa.Table:
    """The same rows, but with one zero and one NaN: floating-point numbers have two zeros and many NaNs."""
    for at, field in enumerate(rows.schema):
        if kinds.is_floating(field.type):
            values = pc.add(rows[field.name], pa.scalar(0.0, field.type))
            is_none = pc.is_nan(values)
            rows = rows.set_column(at, field, pc.if_else(is_none, pa.scalar(float("nan"), field.type), values))
    return rows
