"""bench.contest: ratios and their median, goals, turns, percentiles."""

import pytest

from bench.contest import Figure, Goal, Round, by_turns, percentile


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


def test_both_take_turns_and_whoever_was_second_is_first_in_the_next_round() -> None:
    turns: list[tuple[str, int]] = []

    def takes(name: str, result: float) -> float:
        turns.append((name, len(turns)))
        return result

    rounds = by_turns(3, lambda number: takes("ours", 10 + number), lambda number: takes("against", 20 + number))
    assert [name for name, _ in turns] == ["ours", "against", "against", "ours", "ours", "against"]
    assert rounds == (Round(10, 20), Round(11, 21), Round(12, 22))


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1), (0.0, 1)])
def test_a_percentile_is_one_of_the_values_by_nearest_rank(share: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected
