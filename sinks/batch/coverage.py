"""The part of a batch that is new, and the proof that the tasks' reads cover it exactly. Pure.

**The handshake**: compare a batch with the replica's position, P (everything below it is committed)::

    end <= P            replay    commit nothing, acknowledge P again
    start <= P < end    append    exactly [P, end); an overlap if start < P
    start > P           gap       refused: [P, start) would be missing for ever
    no P yet            append    [start, end): the replica begins here

This is the check of a RocketMQ slave (the offset of a transfer must equal its own maximum), at batch granularity. An
overlap is ordinary: a batch commits up to the end of its last record, which may lie past the batch's own end, where
the next batch starts. Driver and tasks both ask `new_part`, so they cannot disagree.

**The proof**, before anything becomes visible: a range owns the records that start in it, and the last one may reach
past its end. So the pieces that tasks read have to join to ``[start, E)`` with

    first.start == start            nothing missing in front
    next.start  == previous.end     no hole, no overlap
    E >= end                        nothing missing behind
    start of the last record < end  E passes `end` by the last owned record and no more

A split in which no record starts (it may be smaller than a record) reports nothing. The join of its neighbours shows
whether that is true.

If offsets count records, and some offsets have none, a piece is the range that the master was asked for and answered.
Its last offset counts as its last record, so nothing reaches past an end, and records only have to lie in the piece.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sources.errors import CoverageError, Gap
from sources.offsets import Offset, OffsetRange, packed

GAP_HINT = (
    "The table is right, and the batch was planned from elsewhere. Start the job again: it reads from the position."
)
HINT = "Nothing was committed. The master's data or its reader is at fault; keep the log and report it."


def new_part(batch: OffsetRange, position: Offset | None) -> OffsetRange:
    """The part of `batch` that is new to a replica at `position`; empty for a replay. Raises Gap, naming no log."""
    if position is None or batch.is_empty:
        return batch
    if batch.start > position:
        raise Gap(
            f"the batch {batch} starts above the replica's position",
            offset=position,
            expected=f"a batch that starts at or below {position}",
            found=f"one that starts at {batch.start}, {batch.start - position} further",
            hint=GAP_HINT,
        )
    return OffsetRange(min(position, batch.end), batch.end)


def clip(split: OffsetRange, wanted: OffsetRange) -> OffsetRange:
    """The part of `split` that lies in `wanted`; empty if none does."""
    start = min(max(split.start, wanted.start), wanted.end)
    return OffsetRange(start, max(start, min(split.end, wanted.end)))


@packed
@dataclass(frozen=True, slots=True)
class Covered:
    """Whole consecutive records that one task read. `range` is not empty; the last starts at `last_record_start`."""

    range: OffsetRange
    last_record_start: Offset


def prove(wanted: OffsetRange, pieces: Iterable[Covered]) -> OffsetRange:
    """The range that `pieces` cover together, ``[wanted.start, E)``. Raises CoverageError, which names no log."""
    ordered = sorted(pieces, key=lambda piece: (piece.range.start, piece.range.end))
    for piece in ordered:
        _check_piece(piece)
    reached = wanted.start
    for piece in ordered:
        _check_join(reached, piece.range)
        reached = piece.range.end
    if reached < wanted.end:
        raise failure("the tasks stopped short of the batch's end", reached, f"all up to {wanted.end}", "nothing")
    if ordered and ordered[-1].last_record_start >= wanted.end:
        raise failure(
            "the tasks read records that the batch does not own",
            wanted.end,
            f"the last record to start below {wanted.end}",
            f"one that starts at {ordered[-1].last_record_start}",
        )
    return OffsetRange(wanted.start, reached)


def one_batch(found: Iterable[OffsetRange]) -> OffsetRange:
    """The one batch that all splits belong to. Raises CoverageError, which names no log."""
    batches = sorted(set(found))
    if len(batches) != 1:
        ranges = ", ".join(map(str, batches)) or "none"
        raise CoverageError("splits of several batches in one", expected="splits of one batch", found=ranges, hint=HINT)
    return batches[0]


def _check_piece(piece: Covered) -> None:
    if piece.last_record_start not in piece.range:
        raise failure(
            "a task reported a last record outside what it covered",
            piece.range.start,
            f"a last record within {piece.range}",
            f"one at {piece.last_record_start}",
        )


def _check_join(reached: Offset, covered: OffsetRange) -> None:
    if covered.start == reached:
        return
    found = f"a piece that covers {covered}"
    if covered.start > reached:
        size = covered.start - reached
        raise failure(
            f"a hole of {size} between what the tasks read", reached, f"a piece that starts at {reached}", found
        )
    raise failure("the tasks read a range twice", covered.start, f"the next piece to start at {reached}", found)


def check_records(records: pa.RecordBatch, covered: OffsetRange) -> None:
    """Check that the rows fill `covered`: each starts where the one before ends (offset + size).

    Raises CoverageError, which names no log.
    """
    starts = records.column("offset").to_numpy()
    ends = starts + records.column("size").to_numpy()
    wanted = np.concatenate(([covered.start], ends))
    found = np.concatenate((starts, [covered.end]))
    wrong = np.flatnonzero(wanted != found)
    if wrong.size:
        at = int(wrong[0])
        raise failure("the records do not join", Offset(int(wanted[at])), "a record there", f"one at {found[at]}")


def check_offsets(records: pa.RecordBatch, covered: OffsetRange) -> None:
    """Check that the rows lie in `covered`, in ascending order. They need not fill it.

    Raises CoverageError, which names no log.
    """
    offsets = records.column("offset").to_numpy()
    if (
        offsets.size
        and offsets[0] >= covered.start
        and offsets[-1] < covered.end
        and (offsets[1:] > offsets[:-1]).all()
    ):
        return
    least = np.concatenate(([covered.start], offsets + 1))[:-1]
    wrong = np.flatnonzero((offsets < least) | (offsets >= covered.end))
    if wrong.size:
        found, expected = int(offsets[wrong[0]]), f"one in [{least[wrong[0]]}, {covered.end})"
        raise failure("a record is not in its range, or not behind the one before", Offset(found), expected, found)


def failure(problem: str, offset: Offset, expected: object, found: object) -> CoverageError:
    """A CoverageError that names no log, with the hint that all of them share."""
    return CoverageError(problem, offset=offset, expected=expected, found=found, hint=HINT)
