"""What a measurement comes to: two contestants by turns, a ratio for each round, and whether the median is the goal's.

Absolute speeds mean nothing on a shared machine: a ratio of two things measured one right after the other does. Who
begins changes from round to round, so that neither always meets a warmer machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How much is measured: `scale` 1.0 is the size that the goals are for, less is a look whether all of it works.

    `folder` is empty at first, for logs, tables, brokers; a work leaves nothing in it that the next one would meet.
    """

    folder: Path
    rounds: int = 5
    scale: float = 1.0

    def scaled(self, count: int, *, least: int = 1) -> int:
        return max(least, round(count * self.scale))


@dataclass(frozen=True, slots=True)
class Goal:
    """What the median of the ratios has to reach: `least` of them at least, or `most` of them at most."""

    least: float | None = None
    most: float | None = None

    def is_met(self, ratio: float) -> bool:
        return (self.least is None or ratio >= self.least) and (self.most is None or ratio <= self.most)

    def __str__(self) -> str:
        return f"≥ {self.least:g}" if self.least is not None else f"≤ {self.most:g}"


@dataclass(frozen=True, slots=True)
class Round:
    """What both contestants came to, measured one right after the other, in the figure's unit."""

    ours: float
    against: float

    @property
    def ratio(self) -> float:
        return self.ours / self.against


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the results: `work`, who did it and who did it beside him, in `unit`, round by round.

    Where a thing is compared with itself (later, larger, with more logs) `ours` and `against` say which is which.
    `details` explain it: sizes, breakdowns, versions; numbers and texts that JSON can hold.
    """

    work: str
    ours: str
    against: str
    unit: str
    rounds: tuple[Round, ...]
    goal: Goal
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def ratios(self) -> tuple[float, ...]:
        return tuple(one.ratio for one in self.rounds)

    @property
    def is_met(self) -> bool:
        return self.goal.is_met(self.ratio)


def warmed_by_turns(rounds: int, ours: Callable[[int], float], against: Callable[[int], float]) -> tuple[Round, ...]:
    """As `by_turns`, behind a round, -1, that does not count: a JVM compiles what each of them runs by and by."""
    _round(-1, ours, against)
    return by_turns(rounds, ours, against)


def by_turns(rounds: int, ours: Callable[[int], float], against: Callable[[int], float]) -> tuple[Round, ...]:
    """`rounds` rounds of both, each told the number of its round; whoever went second goes first in the next."""
    return tuple(_round(number, ours, against) for number in range(rounds))


def _round(number: int, ours: Callable[[int], float], against: Callable[[int], float]) -> Round:
    if number % 2:
        theirs = against(number)
        return Round(ours(number), theirs)
    return Round(ours(number), against(number))


def percentile(values: Sequence[float], share: float) -> float:
    """The least of `values` that is not below `share` of them: nearest rank. Raises ValueError for none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1_000_000) * len(ordered) // 1_000_000) - 1)]
