"""A contest: two contestants take turns, each round gives a ratio, and the median ratio is compared with a goal.

Absolute speeds mean nothing on a shared machine, but the ratio of two things measured one right after the other does.
The contestant that begins changes from round to round, so that neither always has the warmer machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How much to measure: the goals are for `scale` 1.0; a smaller one only checks that everything works.

    `folder`, for logs, tables and brokers, is empty at first.
    """

    folder: Path
    rounds: int = 5
    scale: float = 1.0

    def scaled(self, count: int, *, least: int = 1) -> int:
        return max(least, round(count * self.scale))


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal for the median of the ratios: at least `least`, or at most `most`."""

    least: float | None = None
    most: float | None = None

    def is_met(self, ratio: float) -> bool:
        return (self.least is None or ratio >= self.least) and (self.most is None or ratio <= self.most)

    def __str__(self) -> str:
        return f"≥ {self.least:g}" if self.least is not None else f"≤ {self.most:g}"


@dataclass(frozen=True, slots=True)
class Round:
    """The results of both contestants, measured one right after the other, in the figure's unit."""

    ours: float
    against: float

    @property
    def ratio(self) -> float:
        return self.ours / self.against


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the results: the `work`, the names of both contestants, the `unit`, and the rounds.

    If a thing is compared with itself (later, larger, with more logs), `ours` and `against` say which is which.
    `details` explain the figure: sizes, breakdowns, versions; numbers and texts that JSON can hold.
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
    """Like `by_turns`, after a round, -1, that does not count: a JVM compiles code only after some time."""
    _round(-1, ours, against)
    return by_turns(rounds, ours, against)


def by_turns(rounds: int, ours: Callable[[int], float], against: Callable[[int], float]) -> tuple[Round, ...]:
    """Run `rounds` rounds of both, each with the number of the round; the second one goes first in the next round."""
    return tuple(_round(number, ours, against) for number in range(rounds))


def _round(number: int, ours: Callable[[int], float], against: Callable[[int], float]) -> Round:
    if number % 2:
        theirs = against(number)
        return Round(ours(number), theirs)
    return Round(ours(number), against(number))


def percentile(values: Sequence[float], share: float) -> float:
    """The least of `values` that is not below `share` of them (nearest rank). Raises ValueError if there are none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1_000_000) * len(ordered) // 1_000_000) - 1)]
