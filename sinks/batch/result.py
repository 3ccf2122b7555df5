"""The steps of a batch, and its result: for progress and metrics, and for tests that kill a batch at a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from sinks.values.incident import Incident
from sources.offsets import Offset, OffsetRange


class BatchStep(Enum):
    """What a batch has just done; members are in order. A replay does only ACKNOWLEDGE."""

    FILES = "files"
    COMMIT = "commit"
    ACKNOWLEDGE = "acknowledge"
    LEDGER = "ledger"


def no_step(step: BatchStep) -> None:
    """The default listener: it does nothing."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What a batch did for a log. `durations_s` has the seconds that each step of the batch took."""

    range: OffsetRange
    records: int
    bytes: int
    durations_s: dict[BatchStep, float] = field(default_factory=dict)
    incidents: Sequence[Incident] = ()


def in_all(results: Sequence[BatchResult]) -> BatchResult:
    """What one batch did for several logs, at least one. `range` adds up their starts and their ends."""
    start, end = sum(one.range.start for one in results), sum(one.range.end for one in results)
    return BatchResult(
        range=OffsetRange(Offset(start), Offset(end)),
        records=sum(one.records for one in results),
        bytes=sum(one.bytes for one in results),
        durations_s=max((one.durations_s for one in results), key=len),
        incidents=[incident for one in results for incident in one.incidents],
    )
