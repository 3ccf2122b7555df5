"""The incidents of a log: what was lost, damaged or found to differ, as rows that last.

An incident that a commit of the log passes over travels in the log's domain metadata, as the ledger rows do, and is
written after the commit: no byte is skipped without a word, whatever is killed when. One that is only found (by
verify, by a start) is written by itself.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from sources.loss import Condition
from sources.offsets import LogId, Offset, OffsetRange


class Action(Enum):
    """What was done about an incident when it was found."""

    SKIPPED = "skipped"
    QUARANTINED = "quarantined"
    REPORTED = "reported"
    REPAIRED = "repaired"


class State(Enum):
    """What became of an incident. An open one explains a hole in the coverage."""

    OPEN = "open"
    HEALED = "healed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One incident as it was found. `detected_at` is in microseconds since 1970, UTC."""

    condition: Condition
    start: Offset
    end: Offset
    cause: str
    action: Action
    detected_at: int

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.start, self.end)

    def id_in(self, log_id: LogId, epoch: int) -> str:
        """Twelve hex digits: the same loss, found again, has the same."""
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
