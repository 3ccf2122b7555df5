"""What ``logtwin coverage`` does: say of each replica what is whole, and why the rest is missing.

Asked are the log table, for position and holes, the ledger and the incidents. They are three tables, written one after
the other; what a killed commit still owes to the others stands in the log table and counts as being there. Of a Kafka
topic each partition is a log, and the table is ``kafka_log``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pipeline.config import Config
from pipeline.display import extent, moment, number
from pipeline.topics_held import HeldTopic, held_topics
from sinks.delta_log import newest
from sinks.holes import Holes
from sinks.incidents import Incident, IncidentRow, incidents_of
from sinks.ledger import app_id, fill_app_id
from sinks.log_state import LogState
from sinks.owned import state_at
from sinks.position import holes_at
from sinks.proof.completeness import Accounts, Completeness, Missing, Reason, Stretch
from sinks.proof.whole_ledger import Owed, read_ledger
from sinks.tables import log_table
from sinks.warehouse import absolute
from sources.epochs import Epoch, Epochs
from sources.errors import CoverageError, ReplicaError
from sources.offsets import LogId, Offset, OffsetRange, Position

_LOOKS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCoverage:
    """One log; docs/json.md documents every field of the JSON. `complete` is None before the first record."""

    log_id: LogId
    epoch: int
    complete: Completeness | None
    elections: Epochs = ()

    @property
    def problem(self) -> CoverageError | None:
        return None if self.complete is None else self.complete.problem(self.log_id)

    def as_json(self) -> dict[str, Any]:
        """Times are ISO 8601, UTC."""
        found, problem = self.complete, self.problem
        return {
            "log": str(self.log_id),
            "epoch": self.epoch,
            "position": None if found is None else found.position,
            "whole": [] if found is None else [_stretch_json(one) for one in found.whole],
            "missing": [] if found is None else [_missing_json(one) for one in found.missing],
            "overlaps": [] if found is None else [_range_json(one) for one in found.overlaps],
            "elections": [_election_json(one) for one in self.elections],
            "problem": None if problem is None else str(problem),
        }


def coverages(config: Config) -> list[LogCoverage]:
    """One a log, or partition of a topic; a topic that was not begun has one. Raises ReplicaError where a table cannot
    be read."""
    logs = [_coverage(config.warehouse, options.log_id) for options in config.logs]
    return logs + [one for topic in held_topics(config) for one in _topic_coverages(config.warehouse, topic)]


def _coverage(warehouse: str, log_id: LogId) -> LogCoverage:
    accounts = read_accounts(warehouse, log_id)
    if accounts is None:
        return LogCoverage(log_id=log_id, epoch=0, complete=None)
    complete = Completeness.of(accounts)
    return LogCoverage(log_id=log_id, epoch=accounts.epoch, complete=complete, elections=accounts.elections)


def _topic_coverages(warehouse: str, topic: HeldTopic) -> list[LogCoverage]:
    found = [_coverage(warehouse, log_id) for log_id, _ in topic.partitions()]
    if any(one.complete is None for one in found):
        raise ReplicaError(
            "the table kafka_log is of an older version",
            log=topic.log_id,
            expected="a state of each partition",
            found="one of the topic as a whole",
            hint="Start logtwin replicate once: it takes the state apart.",
        )
    return found or [LogCoverage(log_id=topic.log_id, epoch=0, complete=None)]


def _incidents(warehouse: str, log_id: LogId, epoch: int, owed: Iterable[Incident]) -> list[IncidentRow]:
    """Those of the table, and what the newest commit still owes it."""
    listed = {row.id: row for row in incidents_of(warehouse, [log_id])[log_id]}
    passed = [IncidentRow(id=one.id_in(log_id, epoch), epoch=epoch, found=one) for one in owed]
    return list(({row.id: row for row in passed} | listed).values())


def read_accounts(warehouse: str, log_id: LogId) -> Accounts | None:
    """What the tables say of the log at one moment; None before its first record.

    They are read until the holes were the same before and after: what the stream adds meanwhile lies above the position
    that was read first. Raises ReplicaError.
    """
    state, holes = _held(warehouse, log_id)
    for _ in range(_LOOKS):
        if state is None or state.offset is None:
            return None
        found = _accounts(warehouse, log_id, state, state.offset, holes)
        again, holes_again = _held(warehouse, log_id)
        if again is not None and (again.epoch, holes_again) == (state.epoch, holes):
            return found
        state, holes = again, holes_again
    raise ReplicaError(
        "the holes of the log change all the time",
        log=log_id,
        found=f"others at each of {_LOOKS} looks",
        hint="Ask again when the backfill or repair that is under way has ended.",
    )


def _held(warehouse: str, log_id: LogId) -> tuple[LogState | None, Holes]:
    """Where the log stands now, and what it lacks."""
    version = newest(log_table(log_id).path(absolute(warehouse)))
    if version is None:
        return None, Holes()
    state = state_at(version, log_id)
    return state, holes_at(version, log_id, state)


def _accounts(warehouse: str, log_id: LogId, state: LogState, offset: Offset, holes: Holes) -> Accounts:
    owed = [
        Owed(app_id(Position(log_id, state.epoch, offset)), offset, state.ledger),
        Owed(fill_app_id(log_id), holes.fills, holes.ledger),
    ]
    return Accounts(
        epoch=state.epoch,
        position=offset,
        first=Offset(0) if state.first is None else state.first,
        holes=holes,
        ledger=read_ledger(warehouse, log_id, owed),
        incidents=_incidents(warehouse, log_id, state.epoch, state.incidents),
        elections=state.epochs,
    )


def _range_json(one: OffsetRange) -> dict[str, Any]:
    return {"start": one.start, "end": one.end}


def _stretch_json(one: Stretch) -> dict[str, Any]:
    return {**_range_json(one.range), "first_stored": _iso(one.first_us), "last_stored": _iso(one.last_us)}


def _election_json(one: Epoch) -> dict[str, Any]:
    return {"number": one.number, "start": one.start, "master": one.master, "since": _iso(one.since_us)}


def _missing_json(one: Missing) -> dict[str, Any]:
    incident = one.incident
    return {
        **_range_json(one.range),
        "reason": one.reason.value,
        "incident": None if incident is None else incident.id,
        "condition": None if incident is None else incident.found.condition.value,
        "state": None if incident is None else incident.state.value,
        "stored_after": _iso(one.after_us),
        "stored_before": _iso(one.before_us),
    }


def _iso(at_us: int | None) -> str | None:
    return None if at_us is None else datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="milliseconds")


def coverage_blocks(logs: Sequence[LogCoverage]) -> Group:
    """For a person: a block a log."""
    return Group(*(part for one in logs for part in (Text(str(one.log_id), style="bold"), _block(one), Text())))


def _block(one: LogCoverage) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _lines(one):
        table.add_row(f"  {name}", Text(value))
    return table


def _lines(one: LogCoverage) -> Iterator[tuple[str, str]]:
    if one.complete is None:
        yield "complete", "nothing is replicated yet"
        return
    for stretch in one.complete.whole:
        yield "complete", f"{_from_to(one.log_id, stretch.range)}{_between(stretch.first_us, stretch.last_us)}"
    for missing in one.complete.missing:
        place = f"{_from_to(one.log_id, missing.range)}: {_why(missing)}"
        yield "missing", f"{place}{_between(missing.after_us, missing.before_us)}"
    for overlap in one.complete.overlaps:
        yield "overlap", _from_to(one.log_id, overlap)
    yield "position", number(one.complete.position) + (f", epoch {one.epoch}" if one.epoch else "")
    for last in one.elections[-1:]:
        yield "elected", f"{last.master or 'a master'}, election {last.number}, from {number(last.start)} on"


def _from_to(log_id: LogId, one: OffsetRange) -> str:
    return f"{number(one.start)} to {number(one.end)}, {extent(one.size, log_id)}"


def _why(missing: Missing) -> str:
    if missing.incident is None:
        return "nothing says why" if missing.reason is Reason.UNEXPLAINED else missing.reason.value
    found = missing.incident.found
    return (
        f"{found.condition.value}, {found.action.value}, incident {missing.incident.id} {missing.incident.state.value}"
    )


def _between(start_us: int | None, end_us: int | None) -> str:
    """Two of the master's times, in words; nothing where neither is known."""
    if start_us is None and end_us is None:
        return ""
    return f"; stored {_moment(start_us)} – {_moment(end_us)}"


def _moment(at_us: int | None) -> str:
    return "…" if at_us is None else moment(datetime.fromtimestamp(at_us / 1e6, UTC))
