"""The one decision about a loss, case by case."""

from __future__ import annotations

import pytest

from pipeline.job.loss_policy import Mend, Skip, Stop, StopAndReport, decide, explained
from sources.errors import (
    AboveMaximum,
    BelowMinimum,
    ChecksumMismatch,
    CorruptRecord,
    EpochsContradict,
    FailedOver,
    Gap,
    LogtwinError,
    MasterUnreachable,
    MissingSegment,
    Recreated,
    RepairPending,
    Rewritten,
    TakenOver,
    WayBackPending,
)
from sources.loss import Condition, OnLoss
from sources.offsets import Offset, OffsetRange

POSITION = Offset(500)
LOSSES = (AboveMaximum, BelowMinimum, ChecksumMismatch, CorruptRecord, Gap, MissingSegment, Recreated, Rewritten)


def span(start: int, end: int) -> OffsetRange:
    return OffsetRange(Offset(start), Offset(end))


@pytest.mark.parametrize("kind", LOSSES)
def test_to_fail_is_to_stop(kind: type[LogtwinError]) -> None:
    assert decide("fail", kind("lost", offset=500), POSITION, span(700, 900)) == Stop()


@pytest.mark.parametrize("on_loss", ["fail", "record"])
@pytest.mark.parametrize("kind", [MasterUnreachable, TakenOver])
def test_what_is_no_loss_is_not_decided_here(kind: type[LogtwinError], on_loss: OnLoss) -> None:
    assert decide(on_loss, kind("something else"), POSITION, span(700, 900)) == Stop()


def test_what_retention_took_is_passed() -> None:
    error = BelowMinimum("gone", offset=500)
    assert decide("record", error, POSITION, span(700, 900)) == Skip(Condition.BELOW_MINIMUM, span(500, 700))


@pytest.mark.parametrize("bounds", [None, span(500, 900), span(0, 900)])
def test_what_the_master_holds_is_never_passed(bounds: OffsetRange | None) -> None:
    assert decide("record", BelowMinimum("gone", offset=500), POSITION, bounds) == Stop()


def test_a_replica_that_has_not_begun_passes_nothing() -> None:
    assert decide("record", BelowMinimum("gone", offset=0), None, span(700, 900)) == Stop()


@pytest.mark.parametrize(
    ("error", "bounds", "condition", "doubtful"),
    [
        (AboveMaximum("short", offset=500), span(0, 300), Condition.ABOVE_MAXIMUM, span(300, 500)),
        (AboveMaximum("short", offset=500), span(0, 900), Condition.ABOVE_MAXIMUM, span(500, 500)),  # it grew again
        (AboveMaximum("short", offset=500), None, Condition.ABOVE_MAXIMUM, span(500, 500)),
        (Rewritten("other", offset=450), span(0, 900), Condition.REWRITTEN, span(450, 500)),
        (Recreated("empty", offset=500), span(0, 0), Condition.RECREATED, span(0, 500)),
    ],
)
def test_a_difference_stops_and_is_recorded(
    error: LogtwinError, bounds: OffsetRange | None, condition: Condition, doubtful: OffsetRange
) -> None:
    assert decide("record", error, POSITION, bounds) == StopAndReport(condition, doubtful)


@pytest.mark.parametrize("kind", [ChecksumMismatch, CorruptRecord, MissingSegment, Gap])
def test_damage_that_comes_as_an_error_is_not_passed(kind: type[LogtwinError]) -> None:
    """Readers pass it where they can, with its bytes; what they raise they could not pass."""
    assert decide("record", kind("bad", offset=600), POSITION, span(0, 900)) == Stop()


# --- a master that overrules


@pytest.mark.parametrize("on_loss", ["fail", "record"])
@pytest.mark.parametrize("kind", [AboveMaximum, Rewritten])
def test_a_master_that_overrules_is_followed(kind: type[LogtwinError], on_loss: OnLoss) -> None:
    error = kind("differs", offset=450)
    assert decide(on_loss, error, POSITION, span(0, 300), overrules=True) == Mend()
    assert decide(on_loss, error, None, span(0, 300), overrules=True) == Stop()  # a start beyond its end, no difference


@pytest.mark.parametrize("on_loss", ["fail", "record"])
@pytest.mark.parametrize("position", [None, POSITION])
def test_a_pending_repair_is_taken_to_its_end(position: Offset | None, on_loss: OnLoss) -> None:
    error = RepairPending("not done", offset=450)
    assert decide(on_loss, error, position, None, overrules=True) == Mend()
    assert decide(on_loss, error, position, None, overrules=False) == Stop()


@pytest.mark.parametrize("on_loss", ["fail", "record"])
def test_an_election_overrules(on_loss: OnLoss) -> None:
    error = FailedOver("another master", offset=450)
    assert decide(on_loss, error, POSITION, span(0, 900)) == Mend()
    assert decide(on_loss, WayBackPending("not done", offset=450), POSITION, None) == Mend()
    assert decide("fail", EpochsContradict("others", offset=500), POSITION, span(0, 900)) == Stop()
    assert decide("record", EpochsContradict("others", offset=500), POSITION, span(0, 900)) == StopAndReport(
        Condition.EPOCHS_CONTRADICT, span(500, 500)
    )


def test_an_empty_master_overrules_nothing() -> None:
    error = Recreated("empty", offset=500)
    assert decide("fail", error, POSITION, span(0, 0), overrules=True) == Stop()
    assert decide("record", error, POSITION, span(0, 0), overrules=True) == StopAndReport(
        Condition.RECREATED, span(0, 500)
    )


@pytest.mark.parametrize("kind", [ChecksumMismatch, CorruptRecord, MissingSegment, Gap, MasterUnreachable, TakenOver])
def test_what_overruling_does_not_change(kind: type[LogtwinError]) -> None:
    for on_loss in ("fail", "record"):
        error = kind("bad", offset=600)
        assert decide(on_loss, error, POSITION, span(0, 900), overrules=True) == Stop()
    gone = BelowMinimum("gone", offset=500)
    assert decide("record", gone, POSITION, span(700, 900), overrules=True) == Skip(
        Condition.BELOW_MINIMUM, span(500, 700)
    )


# --- what an operator is told


@pytest.mark.parametrize("kind", [AboveMaximum, Rewritten, Recreated])
def test_a_difference_names_the_repair(kind: type[LogtwinError]) -> None:
    assert "logtwin repair" in str(explained(kind("differs", offset=1, hint="Look."), "fail", POSITION))
    assert "logtwin repair" in str(explained(kind("differs", offset=1), "record", POSITION))


@pytest.mark.parametrize("kind", [BelowMinimum, ChecksumMismatch, CorruptRecord, MissingSegment])
def test_a_loss_that_stops_a_log_names_the_option(kind: type[LogtwinError]) -> None:
    told = explained(kind("lost", offset=7, log="rocketmq/a", hint="Look."), "fail", POSITION)
    assert (type(told), told.offset, told.log) == (kind, 7, "rocketmq/a")
    assert told.hint is not None
    assert told.hint.startswith("Look. With on_loss")
    assert explained(kind("lost", hint="Look."), "record", POSITION).hint == "Look."


def test_an_option_that_would_not_help_is_not_named() -> None:
    assert explained(BelowMinimum("gone", offset=0), "fail", None).hint is None
    assert explained(AboveMaximum("a start beyond", hint="Look."), "fail", None).hint == "Look."
    assert explained(Gap("above", offset=0), "fail", POSITION).hint is None
    assert explained(MasterUnreachable("away"), "fail", POSITION).hint is None
