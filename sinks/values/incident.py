"""An incident, and what becomes of it. Pure; the table is `sinks/books/incidents.py`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from sources.errors import LogtwinError
from sources.loss import Condition
from sources.offsets import LogId, Offset, OffsetRange


class Action(Enum):
    """How an incident was handled when it was found."""

    SKIPPED = "skipped"
    QUARANTINED = "quarantined"
    REPORTED = "reported"
    REPAIRED = "repaired"


class State(Enum):
    """The state of an incident. An open one explains a hole in the coverage."""

    OPEN = "open"
    HEALED = "healed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One incident as it was found. `detected_at` is in microseconds since 1970, UTC; 0 as long as nobody noted it."""

    condition: Condition
    start: Offset
    end: Offset
    cause: str
    action: Action
    detected_at: int = 0

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.start, self.end)

    def id_in(self, log_id: LogId, epoch: int) -> str:
        """The incident's id, twelve hex digits. The same loss, found again, has the same id."""
        place = f"{log_id}@{epoch} {self.condition.value} {self.start} {self.end}"
        return hashlib.sha256(place.encode()).hexdigest()[:12]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "condition": self.condition.value, "action": self.action.value}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Incident:
        """The inverse of `as_dict`. Raises KeyError, TypeError or ValueError for what it did not give."""
        return cls(
            condition=Condition(values["condition"]),
            start=values["start"],
            end=values["end"],
            cause=values["cause"],
            action=Action(values["action"]),
            detected_at=values["detected_at"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRow:
    """An incident and what became of it. `ended_at` is in microseconds since 1970, UTC; None while open."""

    id: str
    epoch: int
    found: Incident
    state: State = State.OPEN
    ended_at: int | None = None
    note: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The columns of the table, without the log."""
        values = {"id": self.id, "epoch": self.epoch, "ended_at": self.ended_at, "note": self.note}
        return {**self.found.as_dict(), **values, "state": self.state.value}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> IncidentRow:
        """The inverse of `as_dict`. Raises KeyError, TypeError or ValueError for what it did not give."""
        return cls(
            id=values["id"],
            epoch=values["epoch"],
            found=Incident.from_dict(values),
            state=State(values["state"]),
            ended_at=values["ended_at"],
            note=values["note"],
        )


def cause_of(error: LogtwinError) -> str:
    """The text of `error` with what was expected and found, but without log, offset and hint."""
    return str(LogtwinError(error.problem, expected=error.expected, found=error.found))


Rows = dict[str, IncidentRow]
"""The incidents of one log by their ids."""


def with_found(rows: Rows, found: Iterable[IncidentRow]) -> Rows:
    """The rows after `found`, all of them open, were found.

    A healed incident is opened again only if it was found after it was healed, so a start that repeats what a commit
    said opens nothing. An incident that an operator has closed stays closed.
    """
    after = dict(rows)
    for row in found:
        known = after.get(row.id)
        if known is None or _is_back(known, row):
            after[row.id] = row
    return after


def _is_back(known: IncidentRow, row: IncidentRow) -> bool:
    return known.state is State.HEALED and known.ended_at is not None and row.found.detected_at > known.ended_at
