"""What a batch does, step by step, and what comes of it: for progress, metrics, and the tests' way to die there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from sinks.incidents import Incident
from sources.offsets import OffsetRange


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
    """What the last batch did. `durations_s`: seconds up to each step from the one before.

    Of a topic `range` leads from the sum of its positions before the batch to that after it.
    """

    range: OffsetRange
    records: int
    bytes: int
    is_overlap: bool
    durations_s: dict[Step, float] = field(default_factory=dict)
    incidents: Sequence[Incident] = ()


class Clock:
    """Seconds that each step took."""

    def __init__(self) -> None:
        self.durations_s: dict[Step, float] = {}
        self._since = time.monotonic()

    def lap(self, step: Step) -> None:
        now = time.monotonic()
        self.durations_s[step] = now - self._since
        self._since = now
