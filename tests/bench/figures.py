"""Figures for tests, by their ratios."""

from __future__ import annotations

from typing import Any

from bench.contest import Figure, Goal, Round

AT_LEAST_4 = Goal(least=4.0)


def figure(work: str, *ratios: float, goal: Goal = AT_LEAST_4, **details: Any) -> Figure:
    """One whose `against` is always 100, so that `ours` is a hundred times the ratio."""
    rounds = tuple(Round(ratio * 100.0, 100.0) for ratio in ratios)
    return Figure(
        work=work, ours="logtwin", against="Spark", unit="records/s", rounds=rounds, goal=goal, details=details
    )
