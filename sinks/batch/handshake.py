"""Compare a batch with the replica's position: replay, append, overlap or gap. Pure.

With position ``P`` (everything below it is committed) and a batch ``[start, end)``::

    end <= P            replay    commit nothing, acknowledge P again
    start <= P < end    append    exactly [P, end); an overlap if start < P
    start > P           gap       refused: [P, start) would be missing for ever
    no P yet            append    [start, end): the replica begins here

This is the check of a RocketMQ slave (the offset of a transfer must equal its own maximum), at batch granularity. An
overlap is ordinary: a batch commits up to the end of its last record, which may lie past the batch's own end, where
the next batch starts. Driver and tasks both call `decide`, so they cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass

from sources.errors import Gap
from sources.offsets import Offset, OffsetRange

GAP_HINT = "The table is right, and the batch was planned from elsewhere: the job goes on at the table's position."


@dataclass(frozen=True, slots=True)
class Replay:
    """Nothing of the batch is new. `position` is what to acknowledge again; None before the first commit."""

    position: Offset | None


@dataclass(frozen=True, slots=True)
class Append:
    """`range` is to be written, and never empty; `is_overlap` says that the batch began below it."""

    range: OffsetRange
    is_overlap: bool


def decide(position: Offset | None, batch: OffsetRange) -> Replay | Append:
    """What to do with `batch`, given the position. Raises Gap, which names no log."""
    if batch.is_empty:
        return Replay(position)
    if position is None:
        return Append(batch, is_overlap=False)
    if batch.end <= position:
        return Replay(position)
    if batch.start > position:
        raise Gap(
            f"the batch {batch} starts above the replica's position",
            offset=position,
            expected=f"a batch that starts at or below {position}",
            found=f"one that starts at {batch.start}, {batch.start - position} further",
            hint=GAP_HINT,
        )
    return Append(batch.starting_at(position), is_overlap=batch.start < position)


def clip(split: OffsetRange, wanted: OffsetRange) -> OffsetRange:
    """The part of `split` that lies in `wanted`; empty if none does."""
    start = min(max(split.start, wanted.start), wanted.end)
    return OffsetRange(start, max(start, min(split.end, wanted.end)))
