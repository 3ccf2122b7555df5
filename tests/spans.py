"""Ranges of offsets, briefly."""

from sources.offsets import Offset, OffsetRange


def span(start: int, end: int) -> OffsetRange:
    return OffsetRange(Offset(start), Offset(end))
