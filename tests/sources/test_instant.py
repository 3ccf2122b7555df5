"""Times of data: any integer has a text, and one that Python knows has Python's."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.readable import instant, iso, moment

MICROSECONDS_FOR_MILLISECONDS = 1_795_775_131_123_456 * 1000
"""A time of November 2026 in microseconds, which a producer gave for milliseconds."""


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_that_python_knows_is_what_python_says(at: datetime) -> None:
    at_us = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert instant(at_us) == at
    assert datetime.fromisoformat(iso(at_us)) == at
    assert iso(at_us, "milliseconds") == at.isoformat(timespec="milliseconds")
    assert moment(at_us) == at.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00") + " UTC"


@given(st.integers(-(1 << 63) + 1, (1 << 63) - 1))
def test_every_time_of_a_column_is_told_as_numpy_tells_it(at_us: int) -> None:
    by_numpy = str(np.datetime64(at_us, "us"))
    sign, digits = ("-", by_numpy[1:]) if by_numpy.startswith("-") else ("", by_numpy)
    year, _, rest = digits.partition("-")
    told = iso(at_us, "microseconds").removesuffix("+00:00")
    assert told.endswith(rest)
    assert int(told.removesuffix(f"-{rest}")) == int(f"{sign}{year}")


@given(st.integers())
def test_no_integer_raises(at_us: int) -> None:
    assert iso(at_us).endswith("+00:00")
    assert moment(at_us).endswith(" UTC")
    assert instant(at_us) is None or instant(at_us) == datetime.fromisoformat(iso(at_us))


@pytest.mark.parametrize(
    ("at_us", "expected"),
    [
        (MICROSECONDS_FOR_MILLISECONDS, f"+{np.datetime64(MICROSECONDS_FOR_MILLISECONDS, 'us')}+00:00"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999999+00:00"),
        (253_402_300_800_000_000, "+10000-01-01T00:00:00+00:00"),
        (-62_135_596_800_000_000, "0001-01-01T00:00:00+00:00"),
        (-62_135_596_800_000_001, "+0000-12-31T23:59:59.999999+00:00"),
    ],
)
def test_a_year_without_four_digits_has_a_sign(at_us: int, expected: str) -> None:
    assert iso(at_us) == expected
