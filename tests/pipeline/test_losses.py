"""The one decision about a loss, case by case."""

from itertools import product
from typing import Any

import pytest

from pipeline.job.losses import MEND, decide, explained
from sinks.values.incident import Action, Incident
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
from tests.sinks.accounts import incident
from tests.spans import span

POSITION = Offset(500)


def at(offset: int, *kinds: type[LogtwinError]) -> list[LogtwinError]:
    return [kind("lost", offset=offset) for kind in kinds]


DAMAGE = (ChecksumMismatch, CorruptRecord, MissingSegment, Gap)
NO_LOSS = (MasterUnreachable, TakenOver)
LOSSES = (AboveMaximum, BelowMinimum, Recreated, Rewritten, *DAMAGE)
ABOVE, BELOW, SAME = span(700, 900), span(0, 300), span(0, 900)  # what the master holds; the replica is at 500
FAIL: tuple[OnLoss, ...] = ("fail",)
RECORD: tuple[OnLoss, ...] = ("record",)


def skip(start: int, end: int) -> Incident:
    return incident(start, end, Condition.BELOW_MINIMUM, cause="lost", detected_at=0)


def report(condition: Condition, start: int, end: int) -> Incident:
    return incident(start, end, condition, cause="lost", action=Action.REPORTED, detected_at=0)


DECISIONS: list[tuple[str, tuple[OnLoss, ...], list[LogtwinError], Offset | None, OffsetRange | None, object]] = [
    ("to fail is to stop", FAIL, at(500, *LOSSES), POSITION, ABOVE, None),
    ("no loss is decided elsewhere", FAIL + RECORD, at(500, *NO_LOSS), POSITION, ABOVE, None),
    ("what retention took is passed", RECORD, at(500, BelowMinimum), POSITION, ABOVE, skip(500, 700)),
    ("what the master may hold is not", RECORD, at(500, BelowMinimum), POSITION, None, None),
    ("what the master holds is not: at the position", RECORD, at(500, BelowMinimum), POSITION, span(500, 900), None),
    ("what the master holds is not: below it", RECORD, at(500, BelowMinimum), POSITION, SAME, None),
    ("a replica that has not begun passes nothing", RECORD, at(0, BelowMinimum), None, ABOVE, None),
    ("shorter", RECORD, at(500, AboveMaximum), POSITION, BELOW, report(Condition.ABOVE_MAXIMUM, 300, 500)),
    ("grown again", RECORD, at(500, AboveMaximum), POSITION, SAME, report(Condition.ABOVE_MAXIMUM, 500, 500)),
    ("unknown", RECORD, at(500, AboveMaximum), POSITION, None, report(Condition.ABOVE_MAXIMUM, 500, 500)),
    ("other bytes", RECORD, at(450, Rewritten), POSITION, SAME, report(Condition.REWRITTEN, 450, 500)),
    ("empty", RECORD, at(500, Recreated), POSITION, span(0, 0), report(Condition.RECREATED, 0, 500)),
    ("readers pass damage with its bytes where they can", RECORD, at(600, *DAMAGE), POSITION, SAME, None),
    ("an election overrules", FAIL + RECORD, at(450, FailedOver), POSITION, SAME, MEND),
    ("a way back is taken to its end", FAIL + RECORD, at(450, WayBackPending), POSITION, None, MEND),
    ("a pending repair is a person's", FAIL + RECORD, at(450, RepairPending), POSITION, None, None),
    ("a pending repair is a person's: no position", FAIL + RECORD, at(450, RepairPending), None, None, None),
    ("other epochs: fail", FAIL, at(500, EpochsContradict), POSITION, SAME, None),
    ("others", RECORD, at(500, EpochsContradict), POSITION, SAME, report(Condition.EPOCHS_CONTRADICT, 500, 500)),
]
OF_A_MASTER_THAT_OVERRULES = [
    ("is followed", FAIL + RECORD, at(450, AboveMaximum, Rewritten), POSITION, BELOW, MEND),
    ("a start beyond its end is no difference", FAIL + RECORD, at(450, AboveMaximum, Rewritten), None, BELOW, None),
    ("a pending repair is taken to its end", FAIL + RECORD, at(450, RepairPending), POSITION, None, MEND),
    ("a pending repair is taken to its end: no position", FAIL + RECORD, at(450, RepairPending), None, None, MEND),
    ("empty overrules nothing: fail", FAIL, at(500, Recreated), POSITION, span(0, 0), None),
    ("empty: record", RECORD, at(500, Recreated), POSITION, span(0, 0), report(Condition.RECREATED, 0, 500)),
    ("the rest is as ever", FAIL + RECORD, at(600, *DAMAGE, *NO_LOSS), POSITION, SAME, None),
    ("also what is passed", RECORD, at(500, BelowMinimum), POSITION, ABOVE, skip(500, 700)),
]


@pytest.mark.parametrize(
    ("case", "overrules"),
    [*((case, False) for case in DECISIONS), *((case, True) for case in OF_A_MASTER_THAT_OVERRULES)],
    ids=lambda case: case[0] if isinstance(case, tuple) else f"overrules={case}",
)
def test_a_loss_is_decided_by_the_option_and_what_is_known(case: Any, overrules: bool) -> None:
    _, options, errors, position, bounds, expected = case
    for on_loss, error in product(options, errors):
        assert decide(on_loss, error, position, bounds, overrules=overrules) == expected, (on_loss, error)


def test_a_difference_names_the_repair_and_a_loss_that_stops_a_log_the_option() -> None:
    for kind in (AboveMaximum, Rewritten, Recreated):
        assert "logtwin repair" in str(explained(kind("differs", offset=1, hint="Look."), "fail", POSITION))
        assert "logtwin repair" in str(explained(kind("differs", offset=1), "record", POSITION))
    for loss in (BelowMinimum, ChecksumMismatch, CorruptRecord, MissingSegment):
        told = explained(loss("lost", offset=7, log="rocketmq/a", hint="Look."), "fail", POSITION)
        assert (type(told), told.offset, told.log) == (loss, 7, "rocketmq/a")
        assert (told.hint or "").startswith("Look. With on_loss")
        assert explained(loss("lost", hint="Look."), "record", POSITION).hint == "Look."


def test_an_option_that_would_not_help_is_not_named() -> None:
    assert explained(BelowMinimum("gone", offset=0), "fail", None).hint is None
    assert explained(AboveMaximum("a start beyond", hint="Look."), "fail", None).hint == "Look."
    assert explained(Gap("above", offset=0), "fail", POSITION).hint is None
    assert explained(MasterUnreachable("away"), "fail", POSITION).hint is None
