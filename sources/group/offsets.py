"""What Spark stores as the offset of a group's stream: one batch, complete in itself.

A log's position is in the table, and the job says where that is (`sources.group.standing`). So an offset does not say
how far anything has come: it is what one batch reads, and nothing follows from the one before it but its number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from sources.errors import ConfigurationError, LogtwinError, error_from
from sources.offsets import Offset, OffsetRange


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The batch `number`, from 1 on; 0 is the beginning of a stream, and nothing is read.

    `batches` is what is read of each log that moves; `errors` what kept a log from being planned. Keys are log ids.
    """

    number: int
    batches: Mapping[str, OffsetRange] = field(default_factory=dict)
    errors: Mapping[str, LogtwinError] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready values. Spark compares their text, so there is one form: keys are in order."""
        return {
            "number": self.number,
            "batches": {log: [int(batch.start), int(batch.end)] for log, batch in sorted(self.batches.items())},
            "errors": {log: error.facts() for log, error in sorted(self.errors.items())},
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises ConfigurationError for another source's."""
        if set(stored) != {"number", "batches", "errors"}:
            raise ConfigurationError(
                "the checkpoint is another source's: no batch of a group of logs",
                expected="number, batches and errors",
                found=stored,
                hint="Move it aside: the tables say where each log goes on.",
            )
        batches = {log: OffsetRange(Offset(start), Offset(end)) for log, (start, end) in stored["batches"].items()}
        return cls(int(stored["number"]), batches, {log: error_from(facts) for log, facts in stored["errors"].items()})
