"""Moments of their own for many who would do something at once."""

from sources.access.spread import Spread


def test_each_has_a_moment_of_its_own_and_one_alone_need_not_wait() -> None:
    spread = Spread(0.5)
    assert [spread.moment_s(10.0) for _ in range(3)] == [10.0, 10.5, 11.0]
    assert spread.moment_s(20.0) == 20.0
    assert spread.moment_s(15.0) == 20.5
    assert Spread(0.5).delay_s() == 0.0
