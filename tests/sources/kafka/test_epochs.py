from __future__ import annotations

import pytest

from sources.errors import AboveMaximum, Rewritten
from sources.kafka.epochs import EpochEnd, check_history
from sources.offsets import LogId, Offset, OffsetRange

LOG = LogId("kafka", "c/orders/0")


def check(epoch: int | None, position: int, found: tuple[int, int], start: int, end: int) -> None:
    bounds = OffsetRange(Offset(start), Offset(end))
    check_history(epoch, Offset(position), EpochEnd(found[0], Offset(found[1])), bounds, LOG)


@pytest.mark.parametrize(
    ("epoch", "position", "found", "end"),
    [
        (5, 100, (5, 100), 100),  # read to the end, same leader
        (5, 100, (5, 300), 300),  # the leader went on
        (5, 100, (5, 100), 200),  # another leader went on exactly there
        (5, 100, (5, 150), 200),  # the old one still wrote some more
        (0, 0, (0, 0), 0),
        (None, 100, (-1, -1), 100),  # no epoch is known: the end alone tells
    ],
)
def test_a_log_that_only_grew(epoch: int | None, position: int, found: tuple[int, int], end: int) -> None:
    check(epoch, position, found, 0, end)


@pytest.mark.parametrize("found", [(5, 80), (4, 80), (-1, -1), (5, 100)])
@pytest.mark.parametrize("epoch", [5, None])
def test_a_log_that_ends_below_the_position(epoch: int | None, found: tuple[int, int]) -> None:
    with pytest.raises(AboveMaximum, match=r"kafka/c/orders/0 at offset 100: .* found 80") as raised:
        check(epoch, 100, found, 10, 80)
    assert raised.value.offset == 100
    assert raised.value.hint


@pytest.mark.parametrize(
    ("found", "same_up_to", "named"),
    [
        ((5, 99), 99, "epoch 5 up to 99"),  # cut below the position, and grown again under another leader
        ((4, 60), 10, "epoch 4 up to 60"),  # the epoch was cut away as a whole: who knows where it began
        ((4, 150), 10, "epoch 4 up to 150"),  # the same, and the older leader's records reach beyond
        ((-1, -1), 10, "no such epoch"),  # the leader has never heard of any up to it
    ],
)
def test_a_log_that_has_another_history_below_the_position(found: tuple[int, int], same_up_to: int, named: str) -> None:
    with pytest.raises(Rewritten, match="expected leader epoch 5 up to 100 or more") as raised:
        check(5, 100, found, 10, 200)
    assert (raised.value.log, raised.value.offset, raised.value.found) == (str(LOG), same_up_to, named)
