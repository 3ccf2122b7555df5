"""``logtwin coverage``: shows for each replica which ranges are complete, and why the rest is missing.

It reads the position and the holes from the log table, and the ledger and the incidents. These three tables are written
one after the other. What a killed commit still owes to the other two is in the log table, and counts as written. Each
partition of a Kafka topic is a log of its own, in the table ``kafka_log``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Group

from pipeline.config.configuration import Config
from pipeline.inspect.selection import HeldTopic, held_topics
from pipeline.monitoring.display import extent, fact_blocks, number
from sinks.books.incidents import incidents_of
from sinks.books.ledger import app_id, fill_app_id
from sinks.delta.delta_log import LoggedVersion, newest
from sinks.proof.completeness import Accounts, Completeness, Missing, Reason, Stretch
from sinks.proof.whole_ledger import Owed, read_ledgers
from sinks.state.fence import holes_at, state_at
from sinks.state.holes import Holes
from sinks.state.log_state import LogState
from sinks.tables import log_table
from sinks.values.incident import IncidentRow
from sinks.warehouse import absolute
from sources.epochs import Epochs
from sources.errors import CoverageError, ReplicaError
from sources.offsets import LogId, Offset, OffsetRange, Position
from sources.readable import iso, moment

_LOOKS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCoverage:
    """The coverage of one log; docs/json.md documents the JSON. `complete` is None before the first record."""

    log_id: LogId
    epoch: int
    complete: Completeness | None
    elections: Epochs = ()

    @property
    def problem(self) -> CoverageError | None:
        return None if self.complete is None else self.complete.problem(self.log_id)

    def as_json(self) -> dict[str, Any]:
        """The values of the JSON output. Times are ISO 8601, UTC."""
        found, problem = self.complete, self.problem
        return {
            "log": str(self.log_id),
            "epoch": self.epoch,
            "position": None if found is None else found.position,
            "whole": [] if found is None else [_stretch_json(one) for one in found.whole],
            "missing": [] if found is None else [_missing_json(one) for one in found.missing],
            "overlaps": [] if found is None else [_range_json(one) for one in found.overlaps],
            "elections": [
                {"number": one.number, "start": one.start, "master": one.master, "since": _iso(one.since_us)}
                for one in self.elections
            ],
            "problem": None if problem is None else str(problem),
        }


def coverages(config: Config) -> list[LogCoverage]:
    """The coverage of each log and each partition of a topic; a topic that has not started has one entry.

    Raises ReplicaError if a table cannot be read.
    """
    topics = held_topics(config)
    logs, partitions = [one.log_id for one in config.logs], [one for topic in topics for one, _ in topic.partitions()]
    found = _all_accounts(config.warehouse, [*logs, *partitions])
    of_logs = [_coverage(log_id, found[log_id]) for log_id in logs]
    return of_logs + [one for topic in topics for one in _topic_coverages(topic, found)]


def _coverage(log_id: LogId, accounts: Accounts | None) -> LogCoverage:
    if accounts is None:
        return LogCoverage(log_id=log_id, epoch=0, complete=None)
    complete = Completeness.of(accounts)
    return LogCoverage(log_id=log_id, epoch=accounts.epoch, complete=complete, elections=accounts.elections)


def _topic_coverages(topic: HeldTopic, accounts: Mapping[LogId, Accounts | None]) -> list[LogCoverage]:
    found = [_coverage(log_id, accounts[log_id]) for log_id, _ in topic.partitions()]
    if any(one.complete is None for one in found):
        raise ReplicaError(
            "the table kafka_log is of an older version",
            log=topic.log_id,
            expected="a state of each partition",
            found="one of the topic as a whole",
            hint="Start logtwin replicate once: it converts the state.",
        )
    return found or [LogCoverage(log_id=topic.log_id, epoch=0, complete=None)]


def read_accounts(warehouse: str, log_id: LogId) -> Accounts | None:
    """Read what the tables say about the log at one moment; None before its first record. Raises ReplicaError."""
    return _all_accounts(warehouse, [log_id])[log_id]


def _all_accounts(warehouse: str, log_ids: Iterable[LogId]) -> dict[LogId, Accounts | None]:
    """The same for several logs, reading each table once for all of them.

    Reads again until the holes are the same before and after. What the stream adds meanwhile lies above the position
    that was read first, and does no harm.
    """
    found: dict[LogId, Accounts | None] = dict.fromkeys(log_ids)
    versions: dict[str, LoggedVersion | None] = {}
    held = _held(warehouse, found, versions)
    for _ in range(_LOOKS):
        looked = _accounts(warehouse, held)
        again = _held(warehouse, looked, versions)
        settled = {log_id for log_id, one in again.items() if one.is_as(held[log_id])}
        found |= {log_id: looked[log_id] for log_id in settled}
        held = {log_id: one for log_id, one in again.items() if log_id not in settled}
        if not held:
            return found
    raise ReplicaError(
        "the holes of the log change all the time",
        log=next(iter(held)),
        found=f"others at each of {_LOOKS} looks",
        hint="Ask again when the backfill or repair that is under way has ended.",
    )


@dataclass(frozen=True, slots=True)
class _Held:
    """The position of a log, and its holes."""

    state: LogState
    offset: Offset
    holes: Holes

    def is_as(self, before: _Held) -> bool:
        """Whether the epoch and the holes are still the same, so that only the stream can have changed the log."""
        return (self.state.epoch, self.holes) == (before.state.epoch, before.holes)

    def owed(self, log_id: LogId) -> list[Owed]:
        """The rows that the newest commits may still owe to the ledger."""
        return [
            Owed(app_id(Position(log_id, self.state.epoch, self.offset)), self.offset, self.state.ledger),
            Owed(fill_app_id(log_id), self.holes.fills, self.holes.ledger),
        ]

    def incidents(self, log_id: LogId, listed: Sequence[IncidentRow]) -> list[IncidentRow]:
        """The incidents in the table, and those that the newest commit still owes to it."""
        epoch = self.state.epoch
        passed = [IncidentRow(id=one.id_in(log_id, epoch), epoch=epoch, found=one) for one in self.state.incidents]
        return list({row.id: row for row in (*passed, *listed)}.values())


def _held(warehouse: str, log_ids: Iterable[LogId], versions: dict[str, LoggedVersion | None]) -> dict[LogId, _Held]:
    """The logs among `log_ids` that have a first record.

    `versions` holds the table versions of the last look, and is updated to the newest: reading a version with many
    files takes longer than everything else.
    """
    of_table = {log_id: log_table(log_id).path(absolute(warehouse)) for log_id in log_ids}
    versions |= {path: newest(path, versions.get(path)) for path in set(of_table.values())}
    found = {}
    for log_id, path in of_table.items():
        version = versions[path]
        state = None if version is None else state_at(version, log_id)
        if version is not None and state is not None and state.offset is not None:
            found[log_id] = _Held(state, state.offset, holes_at(version, log_id, state))
    return found


def _accounts(warehouse: str, held: Mapping[LogId, _Held]) -> dict[LogId, Accounts]:
    if not held:
        return {}
    ledgers = read_ledgers(warehouse, {log_id: one.owed(log_id) for log_id, one in held.items()})
    listed = incidents_of(warehouse, held)
    return {
        log_id: Accounts(
            epoch=one.state.epoch,
            position=one.offset,
            first=Offset(0) if one.state.first is None else one.state.first,
            holes=one.holes,
            ledger=ledgers[log_id],
            incidents=one.incidents(log_id, listed[log_id]),
            elections=one.state.epochs,
        )
        for log_id, one in held.items()
    }


def _range_json(one: OffsetRange) -> dict[str, Any]:
    return {"start": one.start, "end": one.end}


def _stretch_json(one: Stretch) -> dict[str, Any]:
    return {**_range_json(one.range), "first_stored": _iso(one.first_us), "last_stored": _iso(one.last_us)}


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
    return None if at_us is None else iso(at_us, "milliseconds")


def coverage_blocks(logs: Sequence[LogCoverage]) -> Group:
    """The coverage as text for a person: one block for each log."""
    return fact_blocks((one.log_id, _lines(one)) for one in logs)


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
    """Two of the master's times, in words; empty if neither is known."""
    if start_us is None and end_us is None:
        return ""
    return f"; stored {_moment(start_us)} – {_moment(end_us)}"


def _moment(at_us: int | None) -> str:
    return "…" if at_us is None else moment(at_us)
