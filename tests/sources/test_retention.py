"""What a lagging replica may still lose, and when at the earliest."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.bounds import MasterRetention, UntilLoss
from sources.offsets import Offset
from tests.spans import span

FILE = 1000
HELD = span(5000, 9500)
THREE_DAYS = MasterRetention(file_size_bytes=FILE, keeps_s=259_200.0, room_bytes=None)
TIGHT = MasterRetention(file_size_bytes=FILE, keeps_s=None, room_bytes=700)


def until_loss(
    retention: MasterRetention, position: int, *, age_s: float | None = None, growth: float | None = None
) -> UntilLoss | None:
    return retention.until_loss(HELD, Offset(position), age_s=age_s, growth_bytes_per_s=growth)


@pytest.mark.parametrize(
    ("position", "bytes_left"),
    [(5000, 0), (5001, 0), (5999, 0), (6000, 1000), (7999, 2000), (9499, 4000), (9500, None), (9501, None)],
)
def test_what_lies_in_a_file_goes_with_the_file(position: int, bytes_left: int | None) -> None:
    """A replica that has everything has nothing to lose."""
    assert until_loss(THREE_DAYS, position) == (None if bytes_left is None else UntilLoss(bytes_left, None))
    for below in (0, 4999):
        assert until_loss(TIGHT, below) == UntilLoss(0, 0.0)


@pytest.mark.parametrize(
    ("retention", "age_s", "growth", "seconds"),
    [
        (THREE_DAYS, 259_000.0, None, 200.0),
        (THREE_DAYS, 259_300.0, None, 0.0),
        (TIGHT, None, 10.0, 270.0),  # 700 bytes of room, and 2000 of older files that go first, at 10 a second
        (TIGHT, None, 0.0, None),  # a log that does not grow needs no room
        (TIGHT, None, None, None),
        (replace(TIGHT, keeps_s=1000.0), 900.0, 10.0, 100.0),  # the earlier of the two counts
        (replace(TIGHT, keeps_s=1000.0), 100.0, 10.0, 270.0),
        (replace(TIGHT, keeps_s=1000.0), None, 10.0, 270.0),
        (replace(TIGHT, keeps_s=200.0), None, 10.0, None),  # its age counts, and may be anything
        (THREE_DAYS, None, 10.0, None),
    ],
)
def test_a_file_goes_when_its_time_is_up_or_its_room_is_needed(
    retention: MasterRetention, age_s: float | None, growth: float | None, seconds: float | None
) -> None:
    assert until_loss(retention, 7000, age_s=age_s, growth=growth) == UntilLoss(2000, seconds)


RETENTIONS = st.builds(
    MasterRetention,
    file_size_bytes=st.integers(1, 2**31),
    keeps_s=st.none() | st.floats(0, 1e9),
    room_bytes=st.none() | st.integers(0, 2**50),
)


@given(
    retention=RETENTIONS,
    held=st.tuples(st.integers(0, 2**50), st.integers(0, 2**50)).map(sorted),
    position=st.integers(0, 2**50),
    age_s=st.none() | st.floats(0, 1e9),
    growth=st.none() | st.floats(0, 1e9),
)
def test_an_estimate_is_never_negative_and_never_better_than_a_smaller_lag(
    retention: MasterRetention, held: list[int], position: int, age_s: float | None, growth: float | None
) -> None:
    bounds = span(held[0], held[1])
    left = retention.until_loss(bounds, Offset(position), age_s=age_s, growth_bytes_per_s=growth)
    ahead = retention.until_loss(bounds, Offset(position + 1), age_s=age_s, growth_bytes_per_s=growth)
    assert (left is None) == (position >= bounds.end)
    if left is not None:
        assert 0 <= left.bytes <= max(position - bounds.start, 0)
        assert left.seconds is None or left.seconds >= 0
    if left is not None and ahead is not None:
        assert left.bytes <= ahead.bytes
        assert ahead.seconds is None or left.seconds is None or left.seconds <= ahead.seconds
