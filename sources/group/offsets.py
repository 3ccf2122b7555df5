"""What Spark stores as the offset of a group's stream: one batch, complete in itself.

A log's position is in the table, and the job tells it (`sources.group.standing`). So an offset does not say how far
anything has come. It says what one batch reads, and depends on the offset before it only by its number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from sources.errors import ConfigurationError, LogtwinError, error_from
from sources.offsets import Offset, OffsetRange


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The batch `number`, counted from 1; 0 is the beginning of a stream, which reads nothing.

    `batches` is what is read of each log that moves; `errors` is what kept a log from being planned. Keys are log ids.
    """

    number: int
    batches: Mapping[str, OffsetRange] = field(default_factory=dict)
    errors: Mapping[str, LogtwinError] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready values. Spark compares their text, so there is one form: keys are in order."""
        return {
            "number": self.number,
            "batches": {log: [int(batch.start), int(batch.end)] for log, batch in sorted(self.batches.items())},
            "errors": {log: error.facts() for log, error in sorted(self.errors.items())},
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return the offset with these values. Raises ConfigurationError if another source stored them."""
        if set(stored) != {"number", "batches", "errors"}:
            raise ConfigurationError(
                "the checkpoint is another source's: no batch of a group of logs",
                expected="number, batches and errors",
                found=stored,
                hint="Move it aside: the tables say where each log goes on.",
            )
        batches = {log: OffsetRange(Offset(start), Offset(end)) for log, (start, end) in stored["batches"].items()}
        return cls(int(stored["number"]), batches, {log: error_from(facts) for log, facts in stored["errors"].items()})
