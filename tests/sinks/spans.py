"""Ranges of offsets, written short."""

from __future__ import annotations

from sources.offsets import Offset, OffsetRange


def span(start: int, end: int) -> OffsetRange:
    return OffsetRange(Offset(start), Offset(end))
