from __future__ import annotations

import pytest

from sources.bounds import check_within
from sources.errors import AboveMaximum, BelowMinimum, OffsetOutOfRange
from sources.offsets import OffsetRange
from tests.spans import span


@pytest.mark.parametrize("wanted", [span(4096, 8192), span(4096, 4096), span(8192, 8192), span(5000, 5001)])
def test_what_lies_inside_is_held(wanted: OffsetRange) -> None:
    check_within(wanted, span(4096, 8192))


@pytest.mark.parametrize(
    ("wanted", "kind", "offset", "expected"),
    [
        (span(4095, 5000), BelowMinimum, 4095, "4096 or more: the master holds [4096, 8192)"),
        (span(0, 9000), BelowMinimum, 0, "4096 or more: the master holds [4096, 8192)"),
        (span(5000, 8193), AboveMaximum, 8193, "8192 or less: the master holds [4096, 8192)"),
        (span(9000, 9500), AboveMaximum, 9000, "8192 or less: the master holds [4096, 8192)"),
    ],
)
def test_what_does_not_is_named(wanted: OffsetRange, kind: type[OffsetOutOfRange], offset: int, expected: str) -> None:
    with pytest.raises(kind) as caught:
        check_within(wanted, span(4096, 8192), log="rocketmq/broker-a")
    error = caught.value
    assert (error.log, error.offset, error.found) == ("rocketmq/broker-a", offset, str(offset))
    assert error.expected == expected
    assert error.hint


def test_the_hint_for_what_was_deleted_is_that_of_its_kind() -> None:
    with pytest.raises(BelowMinimum, match=r"found 5\. Retention, or somebody who deleted records"):
        check_within(span(5, 6), span(6, 7), kind="kafka")
