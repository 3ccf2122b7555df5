"""docs/json.md names every key of what the verbs say to programs."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pipeline.inspect.coverage import LogCoverage
from pipeline.inspect.incidents import Listed
from pipeline.inspect.status import LogStatus, PartitionStatus
from pipeline.inspect.tables import ColumnInfo, Relation
from pipeline.inspect.typed_status import LogPlace, TypedStatus
from pipeline.operate.backfill import BackfillResult
from pipeline.operate.maintain import MaintenanceStep
from pipeline.operate.typed_tables import TypedVerdict
from pipeline.verify.queues import Jump
from pipeline.verify.summary import VerifySummary
from sinks.books.incident import Action, Incident, IncidentRow, State
from sinks.proof.completeness import Completeness, Missing, Reason, Stretch
from sinks.proof.verdicts import Claim, Compared, Difference, DifferenceKind, Verdict
from sinks.tables import INCIDENTS
from sinks.typed.columns import Column as TypedColumn
from sources.epochs import Epoch
from sources.loss import Condition
from sources.offsets import LogId, Offset, OffsetRange

DOCUMENT = Path(__file__).parents[1] / "docs" / "json.md"
LOG = LogId("dister", "shop")
RANGE = OffsetRange(Offset(1), Offset(9))


TYPED = TypedStatus(
    "orders",
    ("orders",),
    "append",
    1,
    0,
    (TypedColumn("id", "id", "string"),),
    (LogPlace("rocketmq/a", 1, 2, 1, None),),
)


def section(verb: str) -> set[str]:
    """The words in code of the section on a verb."""
    text = DOCUMENT.read_text().split(f"\n## {verb}\n", 1)[1].split("\n## ", 1)[0]
    return set(re.findall(r"`(\w+)`", text))


def keys(value: Any) -> set[str]:
    """Those of an object, and of the objects in it."""
    if isinstance(value, list):
        return set().union(*map(keys, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*map(keys, value.values()))


def coverage() -> dict[str, Any]:
    stretch = Stretch(RANGE, 1, 2)
    missing = Missing(range=RANGE, reason=Reason.UNEXPLAINED, incident=None, after_us=None, before_us=None)
    found = Completeness(position=Offset(9), whole=(stretch,), missing=(missing,), overlaps=(RANGE,), beyond=None)
    return LogCoverage(log_id=LOG, epoch=0, complete=found, elections=(Epoch(1, Offset(0)),)).as_json()


def verification() -> dict[str, Any]:
    difference = Difference(Offset(1), DifferenceKind.CHANGED, 5)
    compared = Compared(claim=Claim(RANGE), verdict=Verdict.REWRITTEN, differences=(difference,))
    return VerifySummary(
        log_id=LOG,
        master="/log",
        position=Offset(9),
        seed=None,
        seconds=1.0,
        bytes=1,
        claims=1,
        earlier_bytes=0,
        without_master_bytes=0,
        compacted=0,
        holes=0,
        differing=1,
        differences=(compared,),
        jumps=None,
    ).as_json()


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("status", {field.name for kind in (LogStatus, PartitionStatus) for field in fields(kind)}),
        ("coverage", keys(coverage())),
        ("verify", keys(verification()) | {field.name for field in fields(Jump)}),
        ("backfill", keys(BackfillResult(log_id=str(LOG), holes=(RANGE,), filled=(), remaining=()).as_json())),
        (
            "tables all, tables show",
            keys(Relation("log", "table", "x", (ColumnInfo("offset", "bigint", "x"),)).as_json()),
        ),
        ("tables list", keys(TYPED.as_json())),
        ("tables check", keys(TypedVerdict("orders", 3, 2, 1, 0, is_by_key=False).as_json())),
        ("maintain", {field.name for field in fields(MaintenanceStep)}),
    ],
)
def test_every_key_is_explained(verb: str, said: set[str]) -> None:
    assert said <= section(verb)


def test_an_incident_has_the_columns_of_the_table_and_its_bytes() -> None:
    found = Incident(
        condition=Condition.GAP, start=Offset(1), end=Offset(9), cause="x", action=Action.SKIPPED, detected_at=1
    )
    said = Listed(LOG, IncidentRow(id="1", epoch=0, found=found, state=State.OPEN)).as_json()
    assert set(said) == {"log", "bytes"} | set(INCIDENTS.schema.names) - {"log_id"}
    assert "bytes" in section("incidents list")
