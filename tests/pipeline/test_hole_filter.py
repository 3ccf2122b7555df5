"""Bounds of a backfill as an operator writes them."""

import pytest

from pipeline.operate.backfill import Wanted
from sources.errors import ConfigurationError
from sources.offsets import Offset, OffsetRange

NOON_US = 1_769_860_800_000_000  # 2026-01-31T12:00:00Z
HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    "text", ["2026-01-31T12:00:00Z", "2026-01-31 12:00", "2026-01-31T13:00:00+01:00", "2026-01-31T12:00:00.000"]
)
def test_times_are_instants_and_without_a_zone_utc(text: str) -> None:
    wanted = Wanted.parse(text, None)
    assert wanted.needs_times
    assert wanted.offsets == OffsetRange(Offset(0), Offset(2**63 - 1))
    assert wanted.may_lie_between(None, NOON_US)
    assert not wanted.may_lie_between(None, NOON_US - 1)


def test_a_hole_in_time() -> None:
    wanted = Wanted.parse("2026-01-31T12:00Z", "2026-01-31T13:00Z")
    within = [(None, None), (NOON_US - HOUR_US, NOON_US), (NOON_US, NOON_US + HOUR_US)]
    within.append((NOON_US + HOUR_US - 1, NOON_US + 2 * HOUR_US))
    outside = [(NOON_US - HOUR_US, NOON_US - 1), (NOON_US + HOUR_US, None), (None, NOON_US - 1)]
    assert [wanted.may_lie_between(*one) for one in (*within, *outside)] == [True] * 4 + [False] * 3


@pytest.mark.parametrize(("start", "end"), [("-5", None), (None, "noon"), ("", None), ("2026-13-01", None)])
def test_neither_offset_nor_time_is_refused(start: str | None, end: str | None) -> None:
    with pytest.raises(ConfigurationError, match="an offset, or a time") as caught:
        Wanted.parse(start, end)
    assert caught.value.found == (end if start is None else start)


@pytest.mark.parametrize(("start", "end"), [("5", "4"), ("2026-02-01", "2026-01-01")])
def test_backwards_is_refused(start: str, end: str) -> None:
    with pytest.raises(ConfigurationError, match="before"):
        Wanted.parse(start, end)
