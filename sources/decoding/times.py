"""Times that a table takes: the years 1 to 9999, UTC. Pure.

A timestamp column has room for 292,000 years to either side of 1970, but Python, and so pyarrow, Polars and PySpark's
`collect`, fail on the whole column if one value lies outside the years 1 to 9999. What a clock says there is the
producer's business and no damage: the row has null instead, and the decoder keeps the number elsewhere in the row.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from sources.decoding.spans import Flags, Ints
from sources.records import TIMESTAMP

FIRST_MS: Final = -62_135_596_800_000
"""The beginning of year 1."""

END_MS: Final = 253_402_300_800_000
"""The beginning of year 10000."""

_US_PER_MS: Final = 1000


def fit(times_ms: Ints) -> Flags:
    """Which of `times_ms`, counted from 1970, a table takes."""
    return np.asarray((times_ms >= FIRST_MS) & (times_ms < END_MS), np.bool_)


def time_column(times_ms: Ints, wanted: Flags) -> pa.Array:
    """Return the times as a column; null where not `wanted`, which no time may be that does not `fit`."""
    return pa.array(np.where(wanted, times_ms, 0) * _US_PER_MS, mask=~wanted).cast(TIMESTAMP)
