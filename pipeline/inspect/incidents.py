"""``logtwin incidents``: lists incidents, explains one, or accepts one."""

from __future__ import annotations

import difflib
import getpass
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.monitoring.display import FactTable, extent, number
from sinks.books.incidents import IncidentsTable, incidents_of, logs_with_incidents
from sinks.books.quarantine import Quarantined, quarantined
from sinks.delta.delta_log import newest
from sinks.state.fence import holes_at, state_at
from sinks.tables import log_table
from sinks.values.incident import IncidentRow, State
from sinks.warehouse import absolute
from sources.errors import ConfigurationError
from sources.loss import Condition, WayPast
from sources.offsets import LogId, OffsetRange, topic_and_number
from sources.readable import iso, moment

_HEAD_BYTES: Final = 16
_PIECES_SHOWN: Final = 10
_COLUMNS: Final = ("id", "log", "condition", "range", "size", "detected", "state")


@dataclass(frozen=True, slots=True)
class Listed:
    """An incident and its log."""

    log_id: LogId
    row: IncidentRow

    def as_json(self) -> dict[str, Any]:
        """The values of the JSON output. Times are ISO 8601, UTC. `bytes` is None if offsets do not count bytes."""
        times = {"detected_at": _iso(self.row.found.detected_at), "ended_at": _iso(self.row.ended_at)}
        size_bytes = self.row.found.range.size if self.log_id.counts_bytes else None
        return {"log": str(self.log_id), **self.row.as_dict(), "bytes": size_bytes, **times}


@dataclass(frozen=True, slots=True)
class Explanation:
    """An incident, what of its range is still missing, and what is kept of it."""

    incident: Listed
    missing: tuple[OffsetRange, ...]
    kept: tuple[Quarantined, ...]


class Incidents:
    """The incidents of all logs of a configuration, and of the partitions of its topics.

    `where` is the configuration's file, for the commands it names.
    """

    def __init__(self, config: Config, where: str) -> None:
        self._config = config
        self._where = where
        self._warehouse = absolute(config.warehouse)

    def all(self) -> list[Listed]:
        """All incidents, log by log, each in the order of its offsets. Raises ReplicaError."""
        log_ids = [*(one.log_id for one in self._config.logs), *self._partitions()]
        found = incidents_of(self._warehouse, log_ids)
        return [Listed(log_id, row) for log_id, rows in found.items() for row in rows]

    def _partitions(self) -> list[LogId]:
        """The partitions of the configuration's topics that have an incident."""
        topics = {one.log_id for one in self._config.named_topics}
        return [one for one in logs_with_incidents(self._warehouse) if one.master in topics] if topics else []

    def open(self) -> list[Listed]:
        return [one for one in self.all() if one.row.state is State.OPEN]

    def one(self, name: str) -> Listed:
        """The incident whose id is `name`, or the only one whose id begins with it. Raises ConfigurationError."""
        return named(self.all(), name, self._where)

    def explain(self, name: str) -> Explanation:
        """Show what happened in the incident `name`, and what is kept. Raises ConfigurationError, ReplicaError."""
        incident = self.one(name)
        place = incident.row.found.range
        kept = quarantined(self._warehouse, incident.log_id, place, _HEAD_BYTES)
        return Explanation(incident, self._missing(incident.log_id, place), tuple(kept))

    def close(self, spark: SparkSession, name: str, note: str) -> Listed:
        """Accept an open incident for good, and record who did so. An ended one stays as it is.

        Returns the incident as it is now.
        """
        incident = self.one(name)
        now_us = time.time_ns() // 1000
        IncidentsTable(spark, self._warehouse, incident.log_id).end(
            [incident.row.id], State.CLOSED, f"{note} ({_operator()})", now_us
        )
        return self.one(incident.row.id)

    def _missing(self, log_id: LogId, place: OffsetRange) -> tuple[OffsetRange, ...]:
        version = newest(log_table(log_id).path(self._warehouse))
        if version is None:
            return ()
        return holes_at(version, log_id, state_at(version, log_id)).within(place)


def named(incidents: Sequence[Listed], name: str, where: str) -> Listed:
    """The one of `incidents` that `name` means: its id, or a beginning that no other id has.

    Raises ConfigurationError.
    """
    found = [one for one in incidents if one.row.id.startswith(name.lower())]
    if len(found) == 1:
        return found[0]
    ids = [one.row.id for one in found or incidents]
    if found:
        problem, expected = f"{where}: several incidents begin with {name!r}", f"one of {', '.join(ids)}"
    else:
        near = difflib.get_close_matches(name.lower(), ids, n=1, cutoff=0.0)
        problem, expected = (
            f"{where}: there is no incident {name!r}",
            f"for example {near[0]}" if near else "none at all",
        )
    raise ConfigurationError(problem, expected=expected, found=name, hint="logtwin incidents list --all shows them.")


def way_out(explained: Explanation, where: str) -> str:
    """The command to run about an incident, in which DIR stands for a copy of the log."""
    incident = explained.incident
    condition, log_id = incident.row.found.condition, incident.log_id
    if condition is Condition.RECREATED and log_id.kind == "kafka":
        log_id, _ = topic_and_number(log_id)  # all of its partitions began anew
    command = f"--config {where} --log {log_id}"
    accept = f"logtwin incidents close {incident.row.id} {command} --note …"
    if incident.row.state is not State.OPEN:
        return f"nothing: it is {incident.row.state.value}"
    if condition.way is WayPast.ACCEPT:
        return accept
    verb, option, value = condition.remedy_for(log_id.kind).partition(" --")
    if condition.way is WayPast.REPAIR:
        return f"{verb} {command}{option}{value}"
    if not explained.missing:
        return f"nothing is missing any more: {accept}"
    start, end = explained.missing[0].start, explained.missing[-1].end
    return f"{verb} {command} --from {start} --to {end}{option}{value}; or, to accept the loss: {accept}"


def incident_lines(incidents: Sequence[Listed]) -> list[str]:
    """Incidents as text for a person: one line each under a heading, never wrapped, so that grep finds whole lines."""
    rows = [_COLUMNS, *map(_cells, incidents)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _cells(one: Listed) -> tuple[str, ...]:
    found = one.row.found
    place = f"{found.range} of epoch {one.row.epoch}" if one.row.epoch else str(found.range)
    what = (one.row.id, str(one.log_id), found.condition.value)
    return (*what, place, _size(one), moment(found.detected_at), one.row.state.value)


def _size(one: Listed) -> str:
    offsets = one.row.found.range.size
    return number(offsets) if one.log_id.counts_bytes else extent(offsets, one.log_id)


def explanation_block(explained: Explanation, where: str) -> FactTable:
    """One incident as text for a person: one fact on each line."""
    return FactTable(_lines(explained, where))


def _lines(explained: Explanation, where: str) -> list[tuple[str, str]]:
    log_id, row, found = explained.incident.log_id, explained.incident.row, explained.incident.row.found
    missing = ", ".join(map(str, explained.missing))
    lines = [
        ("incident", f"{row.id} of {log_id}, epoch {row.epoch}"),
        ("condition", f"{found.condition.value}: {found.condition.cause}"),
        ("range", f"{found.range}, {extent(found.range.size, log_id)}"),
        ("found", f"{found.cause}; {found.action.value} at {moment(found.detected_at)}"),
        ("state", row.state.value + ("" if row.ended_at is None else f" at {moment(row.ended_at)}: {row.note}")),
        ("missing", missing or "nothing of the range"),
    ]
    lines += [("quarantine", text) for text in _kept(log_id, explained.kept)]
    return [*lines, ("hint", found.condition.hint_for(log_id.kind)), ("way out", way_out(explained, where))]


def _kept(log_id: LogId, pieces: Sequence[Quarantined]) -> list[str]:
    shown = [
        f"{one.range}, {extent(one.range.size, log_id)}: {one.head.hex(' ', 4)} …" for one in pieces[:_PIECES_SHOWN]
    ]
    return shown + ([f"and {len(pieces) - len(shown):,} more"] if len(pieces) > len(shown) else [])


def _operator() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    return f"{user} on {socket.gethostname()}"


def _iso(at_us: int | None) -> str | None:
    return None if at_us is None else iso(at_us)
