"""Cuts a period into equal spans of a common length, such as 5 minutes or a day. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_WIDTHS_S: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(_MINUTE_S * count for count in (1, 2, 5, 10, 15, 30)),
    *(_HOUR_S * count for count in (1, 2, 3, 6, 12)),
    *(_DAY_S * count for count in (1, 2, 7, 14, 28, 91, 364)),
)


def width_s(first: datetime, last: datetime, most: int) -> int:
    """The shortest span of which at most `most` cover the times from `first` to `last`, wherever the spans begin."""
    period_s = (last - first).total_seconds()
    fitting = (width for width in _WIDTHS_S if period_s <= (most - 1) * width)
    return next(fitting, _WIDTHS_S[-1])
