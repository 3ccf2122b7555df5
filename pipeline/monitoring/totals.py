"""What a run's batches add up to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from sinks.batch.result import BatchResult, BatchStep


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
