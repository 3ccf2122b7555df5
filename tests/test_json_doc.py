"""docs/json.md names every key of what the verbs say to programs."""

import re
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline.inspect.config_check import Check
from pipeline.inspect.coverage import LogCoverage
from pipeline.inspect.incidents import Listed
from pipeline.inspect.overview import job_as_json
from pipeline.inspect.tables import ColumnInfo, Relation
from pipeline.inspect.typed_status import LogPlace, TypedCounts, TypedStatus
from pipeline.monitoring.facts import Readers, facts_of
from pipeline.monitoring.progress import PartitionProgress, Progress
from pipeline.monitoring.run_state import Run
from pipeline.monitoring.upkeep import Upkeep
from pipeline.operate.backfill import BackfillResult
from pipeline.operate.maintain import MaintenanceStep
from pipeline.operate.typed_tables import TypedVerdict
from pipeline.verify.queues import Jump
from pipeline.verify.summary import VerifySummary
from sinks.proof.completeness import Completeness, Missing, Reason, Stretch
from sinks.proof.verdicts import Claim, Compared, Difference, DifferenceKind, Verdict
from sinks.state.log_state import Writer
from sinks.tables import INCIDENTS
from sinks.typed.columns import Column as TypedColumn
from sinks.values.incident import Action, Incident, IncidentRow, State
from sources.epochs import Epoch
from sources.loss import Condition
from sources.offsets import UNITS, LogId, Offset, OffsetRange, Unit

DOCUMENT = Path(__file__).parents[1] / "docs" / "json.md"
LOG = LogId("dister", "shop")
RANGE = OffsetRange(Offset(1), Offset(9))


JOB = Run(
    writer=Writer(run="a1", host="h", pid=1, since="2026-11-27T00:00:00Z"),
    process_space="h",
    updated_at=datetime(2026, 11, 27, tzinfo=UTC),
    shard="2/8",
)
TYPED = TypedStatus(
    "orders",
    ("orders",),
    "append",
    TypedCounts(1),
    (TypedColumn("id", "id", "string"),),
    (LogPlace("rocketmq/a", 1, 2, 1, None),),
)


def section(verb: str) -> str:
    return DOCUMENT.read_text().split(f"\n## {verb}\n", 1)[1].split("\n## ", 1)[0]


def words(text: str) -> set[str]:
    """Those in code."""
    return set(re.findall(r"`(\w+)`", text))


def documented(verb: str) -> list[tuple[set[str], set[str]]]:
    """The rows of the table of a section: keys, and the words in code that explain them."""
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", section(verb), re.M)
    return [(words(keys), words(explained)) for keys, explained in rows]


def inner(value: Any) -> set[str]:
    """The keys of the objects in a value."""
    if isinstance(value, list | tuple):
        return set().union(*map(inner, value))
    if isinstance(value, dict):
        return set(value).union(*map(inner, value.values()))
    return set()


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


def named(*kinds: type) -> dict[str, Any]:
    """An object with the fields of these dataclasses."""
    return {field.name: None for kind in kinds for field in fields(kind)}


SAID: dict[str, dict[str, Any]] = {
    "coverage": coverage(),
    "verify": verification() | {"jumps": [named(Jump)]},
    "backfill": BackfillResult(log_id=str(LOG), holes=(RANGE,), filled=(RANGE,), remaining=(RANGE,)).as_json(),
    "jobs": job_as_json(JOB),
    "tables list": TYPED.as_json(),
    "tables all, tables show": Relation("log", "table", "x", (ColumnInfo("offset", "bigint", "x"),)).as_json(),
    "maintain": named(MaintenanceStep),
    "config check": Check("file", True, "x").as_json(),
}
VALUES = {
    "retention", "incident", "unexplained",  # reasons
    "view", "table",  # kinds
    "merge", "vacuum", "log", "retain", "join",  # steps
}  # fmt: skip
"""What the explanations name beside keys."""


def rows_of(declared: type, units: tuple[Unit, ...] = UNITS) -> list[str]:
    shown = [one for one in facts_of(declared).values() if one.readers & Readers.STATUS]
    return [f"| {', '.join(f'`{key}`' for key in one.keys(units))} | {one.kind} | {one.meaning} |" for one in shown]


def test_the_status_is_documented_where_it_is_declared() -> None:
    found = [line for line in section("status").splitlines() if line.startswith("| `")]
    assert found == [*rows_of(Progress), *rows_of(PartitionProgress, ("offsets",))]
    assert [line for line in section("upkeep").splitlines() if line.startswith("| `")] == rows_of(Upkeep)


@pytest.mark.parametrize("verb", SAID)
def test_the_keys_are_those_of_the_table_no_more_and_no_less(verb: str) -> None:
    assert sorted(key for keys, _ in documented(verb) for key in keys) == sorted(SAID[verb])


@pytest.mark.parametrize("verb", SAID)
def test_keys_of_inner_objects_stand_in_the_row_of_theirs_and_no_others(verb: str) -> None:
    for keys, explained in documented(verb):
        within = set().union(*(inner(SAID[verb][key]) for key in keys))
        assert within <= explained, keys
        assert explained - within <= VALUES | set(SAID[verb]), keys


def test_all_that_tables_check_says_is_explained_and_nothing_else() -> None:
    said = set(TypedVerdict("orders", 3, TypedCounts(2), 0, is_by_key=False).as_json())
    of_a_topic, reasons = {"records", "why"}, {"not_in_logs", "left_out", "condition", "tags", "where"}
    assert words(section("tables check")) == said | of_a_topic | reasons | {"from"}


def test_an_incident_has_the_columns_of_the_table_and_its_bytes() -> None:
    found = Incident(
        condition=Condition.GAP, start=Offset(1), end=Offset(9), cause="x", action=Action.SKIPPED, detected_at=1
    )
    said = Listed(LOG, IncidentRow(id="1", epoch=0, found=found, state=State.OPEN)).as_json()
    assert set(said) == {"log", "bytes"} | set(INCIDENTS.schema.names) - {"log_id"}
    assert words(section("incidents list")) == {"incidents", "bytes"}
