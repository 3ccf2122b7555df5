"""Where the histories of elected masters part: section 3.4 of the RocketMQ notes, and a group that is simulated."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.epochs import KEPT, Epoch, Epochs, below, parting, seen
from sources.errors import EpochsContradict, FailedOver
from sources.loss import Condition
from sources.offsets import Offset


def epochs(*given: tuple[int, int]) -> Epochs:
    return tuple(Epoch(number, Offset(start)) for number, start in given)


OURS = epochs((1, 0), (2, 100), (5, 250))


@pytest.mark.parametrize(
    ("theirs", "maximum"),
    [
        (OURS, 400),
        (OURS, 300),
        (epochs((1, 0), (2, 100), (5, 250), (6, 300)), 300),
        (epochs((5, 250), (6, 380)), 400),  # it has forgotten the oldest
    ],
)
def test_a_history_that_goes_on(theirs: Epochs, maximum: int) -> None:
    assert parting(OURS, Offset(300), theirs, Offset(maximum)) is None


@pytest.mark.parametrize(
    ("theirs", "maximum", "common", "cause"),
    [
        (epochs((1, 0), (2, 100), (5, 250), (6, 280)), 900, 280, "the replica has epoch 5 from 250 on, up to 300; the "
         "master has epoch 6 from 280 on"),
        (epochs((1, 0), (2, 100), (6, 270)), 900, 250, "the replica has epoch 5 from 250 on, up to 300; the master has "
         "epoch 6 from 270 on"),
        (epochs((1, 0), (2, 100), (5, 260)), 900, 250, "the replica has epoch 5 from 250 on, up to 300; the master has "
         "epoch 5 from 260 on"),
        (epochs((1, 0), (7, 90)), 900, 90, "the replica has epoch 2 from 100 on, up to 300; the master has "
         "epoch 7 from 90 on"),
        (OURS, 299, 299, "the replica has epoch 5 from 250 on, up to 300; the master's log ends at 299"),
        (epochs((1, 0)), 80, 80, "the replica has epoch 2 from 100 on, up to 300; the master's log ends at 80"),
    ],
)  # fmt: skip
def test_a_history_that_parts(theirs: Epochs, maximum: int, common: int, cause: str) -> None:
    found = parting(OURS, Offset(300), theirs, Offset(maximum))
    assert found is not None
    assert (found.common, found.condition, found.cause) == (common, Condition.FAILED_OVER, cause)
    error = found.error()
    assert isinstance(error, FailedOver)
    assert (error.offset, error.found) == (common, cause)


@pytest.mark.parametrize(
    ("theirs", "words"),
    [((), "begin with none"), (epochs((9, 300)), "begin with epoch 9 from 300 on, the replica's end with epoch 5")],
)
def test_a_list_with_nothing_in_common(theirs: Epochs, words: str) -> None:
    found = parting(OURS, Offset(300), theirs, Offset(900))
    assert found is not None
    assert (found.common, found.condition) == (None, Condition.EPOCHS_CONTRADICT)
    assert words in found.cause
    assert isinstance(found.error(), EpochsContradict)


def test_who_knows_no_epochs_has_nothing_to_compare() -> None:
    assert parting((), Offset(300), OURS, Offset(0)) is None
    assert parting(epochs((7, 300)), Offset(300), OURS, Offset(900)) is None  # nothing of it was replicated


def test_an_epoch_keeps_the_moment_when_it_was_first_seen() -> None:
    first = seen((), epochs((1, 0), (2, 100)), 1000)
    after = seen(first, epochs((1, 0), (2, 100), (5, 250)), 2000)
    assert [(one.number, one.since_us) for one in after] == [(1, 1000), (2, 1000), (5, 2000)]
    assert seen(after, (), 3000) == after  # a batch that a plain master has brought


def test_the_newest_are_kept() -> None:
    many = epochs(*((number, number * 10) for number in range(1, 300)))
    assert seen((), many, 1) == many[-KEPT:]


@given(st.randoms(use_true_random=False))
def test_the_common_point_is_where_what_the_masters_wrote_begins_to_differ(chance: random.Random) -> None:
    """Members of a group write and are elected at random; each byte carries the number of its epoch."""
    logs: list[list[int]] = [[] for _ in range(3)]
    master = 0
    for number in range(1, 8):
        master = chance.randrange(3)
        logs[master] += [number] * chance.randrange(1, 5)  # a master without a byte leaves an epoch that nobody can see
        for slave in range(3):
            if slave != master and chance.random() < 0.6:
                logs[slave] = logs[master][: chance.randrange(len(logs[master]) + 1)] or logs[slave]
    ours, theirs = logs[chance.randrange(3)], logs[master]
    found = parting(_listed(ours), Offset(len(ours)), _listed(theirs), Offset(len(theirs)))
    same = next((at for at, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other), None)
    common = min(len(ours), len(theirs)) if same is None else same
    if common == len(ours):
        assert found is None
    else:
        assert found is not None
        assert (found.common or 0) == common


def _listed(log: list[int]) -> Epochs:
    starts = {number: at for at, number in reversed(list(enumerate(log)))}
    return epochs(*sorted(starts.items()))


def test_below_an_offset() -> None:
    assert below(OURS, Offset(250)) == OURS[:2]
    assert below(OURS, Offset(251)) == OURS
