"""Whether a ratio has fallen, by measurements that scatter.

A round measures both sides of its ratios, one right after the other, so that what slows the machine slows both. What
counts is the median of the rounds, of which there are more where they disagree. A ratio that is too low then is looked
at a second time, and has fallen only if it is too low again.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeAlias

Ratios: TypeAlias = Mapping[str, float]

ALLOWED: Final = 0.75
"""Of the recorded ratio."""
_AGREEMENT: Final = 0.05


def settled(measure: Callable[[int], Ratios], *, least: int, most: int) -> dict[str, float]:
    """The median of each ratio, of `least` rounds or as many more as it takes, up to `most`.

    `measure` is given the number of the round.
    """
    rounds: list[Ratios] = []
    while len(rounds) < least or (len(rounds) < most and any(map(scatters, _by_name(rounds).values()))):
        rounds.append(measure(len(rounds)))
    return {name: statistics.median(ratios) for name, ratios in _by_name(rounds).items()}


def scatters(ratios: Sequence[float]) -> bool:
    """Whether half of them or more are farther from their median than 5 % of it."""
    middle = statistics.median(ratios)
    return statistics.median(abs(ratio - middle) for ratio in ratios) > _AGREEMENT * middle


def too_low(ratios: Ratios, recorded: Ratios) -> list[str]:
    """The names of those `ratios` that are below ALLOWED of the `recorded` one, or have none."""
    return [name for name, ratio in ratios.items() if name not in recorded or ratio < ALLOWED * recorded[name]]


def fallen(look: Callable[[Collection[str]], Ratios], names: Collection[str], recorded: Ratios) -> list[str]:
    """Which of `names` are too low at both of two looks; the second is at those only that were too low at the first."""
    low = too_low(look(names), recorded)
    return too_low(look(low), recorded) if low else []


def _by_name(rounds: Sequence[Ratios]) -> dict[str, list[float]]:
    return {name: [one[name] for one in rounds] for name in rounds[0]} if rounds else {}
