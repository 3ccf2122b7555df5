"""What a batch does, step by step, and what comes of it: for progress, metrics, and the tests' way to die there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from sinks.books.incident import Incident
from sources.offsets import Offset, OffsetRange


class Step(Enum):
    """What a batch has just done, in order. A replay does ACKNOWLEDGE alone."""

    FILES = "files"
    COMMIT = "commit"
    ACKNOWLEDGE = "acknowledge"
    LEDGER = "ledger"


def no_step(step: Step) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What a batch did for a log. `durations_s`: seconds up to each step of the batch from the one before."""

    range: OffsetRange
    records: int
    bytes: int
    is_overlap: bool
    durations_s: dict[Step, float] = field(default_factory=dict)
    incidents: Sequence[Incident] = ()


def in_all(results: Sequence[BatchResult]) -> BatchResult:
    """What one batch did for several logs, at least one: `range` leads from the sum of their positions to another."""
    start, end = sum(one.range.start for one in results), sum(one.range.end for one in results)
    return BatchResult(
        range=OffsetRange(Offset(start), Offset(end)),
        records=sum(one.records for one in results),
        bytes=sum(one.bytes for one in results),
        is_overlap=any(one.is_overlap for one in results),
        durations_s=max((one.durations_s for one in results), key=len),
        incidents=[incident for one in results for incident in one.incidents],
    )
