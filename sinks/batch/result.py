"""The steps of a batch, its result, and what results add up to: for progress, metrics, and tests that kill a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of a run's batches. Immutable, so that other threads read consistent totals."""

    records: int = 0
    bytes: int = 0
    batches: int = 0
    commits: int = 0
    stage_s: Mapping[BatchStep, float] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """By the names that `Progress` has for them."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def plus(self, result: BatchResult) -> Totals:
        if result.range.is_empty:  # a replay
            return replace(self, batches=self.batches + 1)
        stage_s = {step: self.stage_s.get(step, 0.0) + spent_s for step, spent_s in result.durations_s.items()}
        return Totals(
            records=self.records + result.records,
            bytes=self.bytes + result.bytes,
            batches=self.batches + 1,
            commits=self.commits + 1,
            stage_s={**self.stage_s, **stage_s},
        )
