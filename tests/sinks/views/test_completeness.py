"""What the view says of each log, against the proof of completeness over the same tables."""

import random
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa
import pytest

from sinks.proof.completeness import COLUMNS, Accounts, Completeness, Reason
from sinks.state.holes import Holes, joined
from sinks.tables import INCIDENTS, LEDGER, LEDGER_SCHEMA
from sinks.values.incident import Action, Incident, IncidentRow, State
from sources.loss import Condition
from sources.offsets import LogId, Offset, OffsetRange
from sources.readable import instant
from tests.sinks.views.lake import Asked, Row
from tests.sinks.views.made_logs import NOON
from tests.sinks.views.made_topics import ranges_of
from tests.sinks.views.stored_logs import time
from tests.spans import span
from tests.truth import Fixture

pytestmark = pytest.mark.spark


@dataclass
class MadeLog:
    """What the tables say of one log; `lost` is what commits have passed, or a repair has taken out."""

    log_id: LogId
    rows: list[Row] = field(default_factory=list)
    lost: list[OffsetRange] = field(default_factory=list)
    incidents: list[IncidentRow] = field(default_factory=list)
    position: int = 0

    def accounts(self) -> Accounts:
        first = min([row["start"] for row in self.rows] + [one.start for one in self.lost])
        deleted = [span(row["start"], row["end"]) for row in self.rows if row["deleted_at"]]
        ledger = pa.Table.from_pylist(self.rows, schema=LEDGER_SCHEMA.remove_metadata()).select(COLUMNS)
        return Accounts(
            epoch=0,
            position=Offset(self.position),
            first=Offset(first),
            holes=Holes(ranges=joined([span(0, first), *deleted, *self.lost])),
            ledger=ledger,
            incidents=self.incidents,
        )


def made_log(number: int) -> MadeLog:
    """Ranges that join or not, lost ones in between and at both ends, the oldest deleted; a time for most of them."""
    source = random.Random(number)
    master = ("dister/log-{}", "rocketmq/log-{}", "kafka/prod/topic/{}")[number % 3]
    log = MadeLog(LogId.parse(master.format(number)), position=source.randrange(3) * 70)
    kept = source.randrange(4)
    for at in range(source.randrange(1, 12)):
        end = log.position + source.randrange(1, 50)
        is_lost = at > 0 and source.random() < 0.3
        if is_lost:
            state = source.choice((State.OPEN, State.CLOSED))
            log.lost.append(span(log.position, end))
            log.incidents.append(
                incident(log.position, end, state, source.choice((Action.SKIPPED, Action.QUARANTINED)))
            )
        else:
            is_deleted = at < kept and not log.lost
            log.rows.append(
                row(log.log_id, log.position, end, at if source.random() < 0.8 else None, deleted=is_deleted)
            )
        log.position = end
    if all(one["deleted_at"] for one in log.rows):
        log.rows[-1]["deleted_at"] = None  # a retention leaves the newest range
    # what was filled again, and what is only a word of verify, explain nothing
    log.incidents.append(incident(0, log.position, State.HEALED, Action.SKIPPED))
    log.incidents.append(incident(log.position, log.position + 99, State.OPEN, Action.REPORTED))
    source.shuffle(log.rows)
    return log


def row(log_id: LogId, start: int, end: int, minute: int | None, *, deleted: bool) -> Row:
    stored = None if minute is None else NOON + timedelta(minutes=minute)
    (made,) = ranges_of(
        str(log_id), (start, end), epoch=start % 3, records=2, bytes=1000 + end - start, first_store_timestamp=stored,
        last_store_timestamp=stored, deleted_at=NOON if deleted else None,
    )  # fmt: skip
    return made


def incident(start: int, end: int, state: State, action: Action) -> IncidentRow:
    found = Incident(
        condition=Condition.GAP, start=Offset(start), end=Offset(end), cause="", action=action, detected_at=1
    )
    return IncidentRow(id=f"{start}-{end}-{state.value}-{action.value}", epoch=0, found=found, state=state)


def agrees(found: Row, accounts: Accounts) -> None:
    """Whether a row of the view says what the proof says of the same accounts."""
    proof = Completeness.of(accounts)
    explained = (Reason.BEGINNING, Reason.RETENTION)
    missing = joined(one.range for one in proof.missing if one.reason not in explained)
    (first, *_) = proof.whole
    through = None if first.last_us is None else instant(first.last_us)
    assert found["complete_through_timestamp"] == through
    assert (found["complete_from"], found["complete_to"]) == (first.range.start, first.range.end)
    assert (found["end"], found["gaps"]) == (proof.position, len(missing))
    assert found["gap_units"] == sum(one.size for one in missing)
    assert [span(one["start"], one["end"]) for one in found["missing"]] == list(missing)
    assert found["open_incidents"] == sum(one.state is State.OPEN for one in accounts.incidents)


LOGS = [made_log(number) for number in range(60)]
MADE_ROWS = {
    LEDGER: [row for log in LOGS for row in log.rows],
    INCIDENTS: [{"log_id": str(log.log_id), **one.as_dict()} for log in LOGS for one in log.incidents],
}


def test_ledgers_with_holes_and_deleted_ranges(asked: Asked) -> None:
    found = {log.log_id: asked.rows("completeness", str(log.log_id)) for log in LOGS}
    for log in LOGS:
        (one,) = found[log.log_id]
        agrees(one, log.accounts())
        there = [row for row in log.rows if not row["deleted_at"]]
        assert (one["records"], one["bytes"]) == (2 * len(there), sum(row["bytes"] for row in there))
    assert {one["gaps"] for (one,) in found.values()} >= {0, 1, 2}
    assert any(one["complete_from"] > 0 for (one,) in found.values())


def test_real_logs_are_complete(asked: Asked, fixture_log: Fixture, log_id: str) -> None:
    (one,) = asked.rows("completeness", log_id)
    newest = max(row["store_timestamp"] for row in fixture_log.rows if not row.get("blank"))
    assert (one["complete_from"], one["complete_to"], one["end"]) == (0, fixture_log.max_offset, fixture_log.max_offset)
    assert (one["complete_through_timestamp"], one["records"]) == (time(newest), len(fixture_log.rows))
    assert (one["bytes"], one["gaps"], one["missing"], one["open_incidents"]) == (fixture_log.max_offset, 0, [], 0)
