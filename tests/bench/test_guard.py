"""bench.guard: what scatters is measured more often, and what is too low twice has fallen."""

from collections.abc import Collection, Mapping, Sequence

import pytest

from bench.contest import Figure, Goal, Round
from bench.guard import fallen, settled, too_low

RECORDED = {"catch-up": 4.0, "Kafka": 2.0, "decode": 9.0}


@pytest.mark.parametrize(
    ("measured", "rounds", "median"),
    [
        ([9.0, 9.4, 5.0, 1.0], 3, 9.0),  # half of them agree within a twentieth of their median
        ([9.0, 9.6, 5.0, 9.0, 1.0], 4, 9.0),
        ([9.7, 5.6, 9.4, 1.0], 3, 9.4),  # one of them was disturbed
        ([6.5, 9.7, 8.0, 9.5, 9.6, 1.0], 5, 9.5),  # until half agree
        ([5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 1.0], 7, 8.0),  # they never do
    ],
)
def test_there_are_more_rounds_where_they_scatter(measured: list[float], rounds: int, median: float) -> None:
    taken: list[int] = []

    def one(number: int) -> dict[str, float]:
        taken.append(number)
        return {"decode": measured[number]}

    assert settled(one, least=3, most=7) == {"decode": median}
    assert taken == list(range(rounds))


def test_a_quarter_less_passes_and_a_little_more_than_that_does_not() -> None:
    assert too_low({"catch-up": 3.0, "Kafka": 6.0, "decode": 6.75}, RECORDED) == []
    assert too_low({"catch-up": 2.99, "Kafka": 1.5, "decode": 6.74, "new": 9.0}, RECORDED) == [
        "catch-up",
        "decode",
        "new",
    ]


class Looks:
    """What is measured at each look, and which names it was asked for."""

    def __init__(self, *measured: Mapping[str, float]) -> None:
        self.measured = measured
        self.asked: list[list[str]] = []

    def __call__(self, names: Collection[str]) -> dict[str, float]:
        self.asked.append(sorted(names))
        return {name: self.measured[len(self.asked) - 1][name] for name in names}


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ({"Kafka": 2.1, "decode": 9.5}, []),
        ({"Kafka": 1.4, "decode": 9.5}, ["Kafka"]),
        ({"Kafka": 1.4, "decode": 1.0}, ["Kafka", "decode"]),
    ],
)
def test_what_was_too_low_is_looked_at_again_before_it_has_fallen(
    second: Mapping[str, float], found: Sequence[str]
) -> None:
    look = Looks({"catch-up": 4.0, "Kafka": 1.0, "decode": 6.5}, second)
    assert fallen(look, list(RECORDED), RECORDED) == found
    assert look.asked == [["Kafka", "catch-up", "decode"], ["Kafka", "decode"]]
    once = Looks(RECORDED)
    assert fallen(once, list(RECORDED), RECORDED) == []
    assert len(once.asked) == 1


# ratios and goals of bench.contest


def test_the_ratio_is_the_median_of_the_rounds_ratios_and_not_the_ratio_of_medians() -> None:
    rounds = (Round(10, 1), Round(20, 10), Round(30, 5))  # ratios 10, 2, 6; the medians are 20 and 5
    figure = Figure(work="w", ours="o", against="a", unit="u", rounds=rounds, goal=Goal(least=6))
    assert list(figure.ratios) == [10, 2, 6]
    assert figure.ratio == 6
    assert figure.is_met


@pytest.mark.parametrize(
    ("goal", "ratio", "is_met"),
    [
        (Goal(least=4), 4.0, True),
        (Goal(least=4), 3.999, False),
        (Goal(most=0.7), 0.7, True),
        (Goal(most=0.7), 0.701, False),
        (Goal(least=0.5, most=1.5), 1.0, True),
        (Goal(least=0.5, most=1.5), 1.6, False),
    ],
)
def test_a_goal_is_met_at_its_bound_and_on_its_side(goal: Goal, ratio: float, is_met: bool) -> None:
    assert goal.is_met(ratio) is is_met
