"""Which rows of the ledger become one: rows of the stream that follow each other, of one hour, up to a size. Pure.

An hour is one of the clock, by `committed_at`: sums of the ledger by hours, days and longer stay what they were. The
size is as much as `verify` reads at a time. It bounds what a single damaged record can cost, because rows are taken
out, compared and repaired whole; and larger rows would save next to nothing, one each 64 MB being few.

Rows are joined from the front of each hour on, as many as fit. So rows that were joined are never joined again, unless
a run was killed or an incident kept them apart: running it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sources.offsets import Offset, OffsetRange

JOINED_BYTES: Final = 64_000_000
HOUR_US: Final = 3_600_000_000
PLANNED_BY: Final = ("epoch", "start", "end", "bytes", "committed_at")
"""The columns that decide; times as microseconds since 1970."""


def groups(rows: pa.Table, barred: Sequence[OffsetRange], bounds: Collection[Offset]) -> Iterator[slice]:
    """The places of the rows that become one, each time at least two.

    `rows` are those of one log that may be joined, by start, with PLANNED_BY. No row that has offsets in a `barred`
    range is among them, and no group reaches over one of the `bounds`.
    """
    if rows.num_rows < 2:
        return
    sizes = rows["bytes"].to_pylist()
    follows = _follows(rows, barred, bounds).tolist()
    first, size_bytes = 0, sizes[0]
    for at in range(1, len(sizes)):
        if follows[at - 1] and size_bytes + sizes[at] <= JOINED_BYTES:
            size_bytes += sizes[at]
            continue
        if at - first > 1:
            yield slice(first, at)
        first, size_bytes = at, sizes[at]
    if len(sizes) - first > 1:
        yield slice(first, len(sizes))


def _follows(rows: pa.Table, barred: Sequence[OffsetRange], bounds: Collection[Offset]) -> npt.NDArray[np.bool_]:
    """Whether each row but the first may be joined to the one before it."""
    epochs, starts, ends = (rows[name].to_numpy() for name in ("epoch", "start", "end"))
    hours = pc.fill_null(rows["committed_at"], -1).to_numpy() // HOUR_US
    is_free = np.ones(len(starts), dtype=bool)
    for one in barred:
        is_free &= (ends <= one.start) | (starts >= one.end)
    found: npt.NDArray[np.bool_] = (ends[:-1] == starts[1:]) & (epochs[:-1] == epochs[1:]) & (hours[:-1] == hours[1:])
    return found & is_free[:-1] & is_free[1:] & ~np.isin(starts[1:], sorted(bounds))
