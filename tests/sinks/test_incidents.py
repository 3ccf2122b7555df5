"""Incidents: what was found once is one row, whatever is repeated, killed or written beside it."""

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sinks.books.incidents import IncidentsTable
from sinks.delta.kernel import KernelTable
from sinks.tables import INCIDENTS
from sinks.values.incident import Incident, IncidentRow, State, with_found
from sources.errors import ReplicaError
from sources.loss import Condition
from sources.offsets import LogId
from tests.sinks.accounts import incident
from tests.sinks.merged import merge_all

BROKER_A, BROKER_B = LogId("rocketmq", "broker-a"), LogId("rocketmq", "broker-b")
NOON = 1_709_208_000_123_456  # 2024-02-29 12:00:00.123456 UTC
HOUR = 3_600_000_000


def lost(start: int, end: int, *, at: int = NOON, condition: Condition = Condition.GAP) -> Incident:
    return incident(start, end, condition, cause=f"expected a record at {start}, found none", detected_at=at)


def row(found: Incident, *, epoch: int = 0) -> IncidentRow:
    return IncidentRow(id=found.id_in(BROKER_A, epoch), epoch=epoch, found=found)


def ended(row: IncidentRow, state: State, at: int) -> IncidentRow:
    return replace(row, state=state, ended_at=at, note="a word")


FOUND = row(lost(0, 10))


@pytest.mark.parametrize(
    ("known", "at", "stays"),
    [
        (FOUND, NOON + HOUR, True),  # the first finding of an open one
        (ended(FOUND, State.HEALED, NOON + HOUR), NOON + 2 * HOUR, False),  # it is lost again, and open again
        (ended(FOUND, State.HEALED, NOON + HOUR), NOON, True),  # a start repeats what the newest commit said
        (ended(FOUND, State.CLOSED, NOON + HOUR), NOON + 2 * HOUR, True),  # an operator accepted it
    ],
)
def test_what_becomes_of_one_that_is_found_again(known: IncidentRow, at: int, stays: bool) -> None:
    again, new = row(lost(0, 10, at=at)), row(lost(10, 20))
    assert with_found({known.id: known}, [again, new]) == {known.id: known if stays else again, new.id: new}


def test_an_id_names_the_log_its_history_the_condition_and_the_range() -> None:
    one = lost(0, 10)
    others = {
        one.id_in(BROKER_B, 0),
        one.id_in(BROKER_A, 1),
        lost(0, 11).id_in(BROKER_A, 0),
        lost(1, 10).id_in(BROKER_A, 0),
        lost(0, 10, condition=Condition.UNDECODABLE).id_in(BROKER_A, 0),
    }
    assert len(others | {one.id_in(BROKER_A, 0)}) == 6
    assert lost(0, 10, at=NOON + HOUR).id_in(BROKER_A, 0) == one.id_in(BROKER_A, 0)


@pytest.fixture
def table(plain: SparkSession, tmp_path: Path) -> IncidentsTable:
    return IncidentsTable(plain, str(tmp_path), BROKER_A)


def delta(warehouse: Path) -> DeltaTable:
    return DeltaTable(str(warehouse / "incidents"))


def test_without_a_table_there_is_nothing_and_none_is_made(tmp_path: Path, table: IncidentsTable) -> None:
    assert table.all() == []
    assert table.open() == []
    assert table.end(["0123456789ab"], State.CLOSED, "why not", NOON) == 0
    assert table.record(0, []) == 0
    assert list(tmp_path.iterdir()) == []


def test_an_incident_is_recorded_once(plain: SparkSession, tmp_path: Path, table: IncidentsTable) -> None:
    found = [lost(300, 400), lost(0, 200, condition=Condition.BELOW_MINIMUM)]
    assert table.record(0, found) == 2
    assert table.record(0, found) == 0
    assert IncidentsTable(plain, str(tmp_path), BROKER_A).record(0, [lost(300, 400, at=NOON + HOUR)]) == 0
    assert table.all() == [row(found[1]), row(found[0])]
    assert delta(tmp_path).version() == 1  # made, written once


def test_analysts_see_words_and_times(tmp_path: Path, table: IncidentsTable) -> None:
    table.record(3, [lost(0, 200, condition=Condition.BELOW_MINIMUM)])
    (found,) = delta(tmp_path).to_pyarrow_table().to_pylist()
    assert found.pop("detected_at").isoformat() == "2024-02-29T12:00:00.123456+00:00"
    assert len(found.pop("id")) == 12
    assert found == {
        "log_id": "rocketmq/broker-a",
        "epoch": 3,
        "condition": "below_minimum",
        "start": 0,
        "end": 200,
        "cause": "expected a record at 0, found none",
        "action": "skipped",
        "state": "open",
        "ended_at": None,
        "note": None,
    }


def test_ending_one_leaves_the_others_open(table: IncidentsTable) -> None:
    first, second, third = lost(0, 10), lost(10, 20), lost(20, 30)
    table.record(0, [first, second, third])
    names = [one.id_in(BROKER_A, 0) for one in (first, second)]
    assert table.end([names[0], "ffffffffffff"], State.HEALED, "backfill", NOON + HOUR) == 1
    assert table.end(names, State.CLOSED, "accepted by ada", NOON + 2 * HOUR) == 1
    assert table.open() == [row(third)]
    assert [(one.state, one.note, one.ended_at) for one in table.all()[:2]] == [
        (State.HEALED, "backfill", NOON + HOUR),
        (State.CLOSED, "accepted by ada", NOON + 2 * HOUR),
    ]
    assert table.record(0, [lost(0, 10, at=NOON + 3 * HOUR), lost(10, 20, at=NOON + 3 * HOUR)]) == 1
    assert [one.found.start for one in table.open()] == [0, 20]


def test_logs_in_one_file_know_nothing_of_each_other(
    plain: SparkSession, tmp_path: Path, table: IncidentsTable
) -> None:
    other = IncidentsTable(plain, str(tmp_path), BROKER_B)
    table.record(0, [lost(0, 10)])
    other.record(0, [lost(0, 10), lost(20, 30)])
    merge_all(KernelTable(plain, INCIDENTS.path(str(tmp_path))), INCIDENTS)
    assert len(delta(tmp_path).file_uris()) == 1
    theirs = other.all()
    assert table.end([lost(0, 10).id_in(BROKER_A, 0)], State.CLOSED, "accepted", NOON) == 1
    assert table.open() == []
    assert other.all() == theirs
    assert len(theirs) == 2


def test_what_cannot_be_read_is_the_replicas_failure(tmp_path: Path, table: IncidentsTable) -> None:
    table.record(0, [lost(0, 10)])
    for path in (tmp_path / "incidents").glob("*.parquet"):
        path.write_bytes(b"not Parquet")
    with pytest.raises(ReplicaError, match="cannot be read"):
        table.all()
    with pytest.raises(ReplicaError, match="cannot be written"):
        table.record(0, [lost(10, 20)])
