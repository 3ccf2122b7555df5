"""What Spark stores as the offset of a group's stream: one batch, complete in itself.

A log's position is in the table, and the job tells it (`sources.group.standing`). So an offset does not say how far
anything has come. It says what one batch reads, and depends on the offset before it only by its number. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from sources.errors import ConfigurationError, LogtwinError, error_from, of_log
from sources.master import MasterLog, PlanFailed, Planned, PlannedSplit
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


def planned(offset: GroupOffset, logs: Mapping[str, MasterLog], cores: int) -> list[Planned]:
    """Return the splits of the batch `offset` in the order of its logs, for `cores` tasks at once.

    Logs that are not in `logs`, by log id, are left out; so are its errors, which are told to whoever follows the logs.
    Logs of files may be read to find records' ends.
    """
    batches = {log_id: batch for log_id, batch in offset.batches.items() if log_id in logs}
    each = _cores(logs, batches, cores)
    return [split for at, batch in batches.items() for split in _splits(logs[at], at, batch, each[at])]


def _cores(logs: Mapping[str, MasterLog], batches: Mapping[str, OffsetRange], cores: int) -> dict[str, int]:
    """Return the part of the cores that each log's bytes are worth, rounded up."""
    sizes = {log_id: logs[log_id].size_bytes(batch) or 0 for log_id, batch in batches.items()}
    total = sum(sizes.values()) or 1
    return {log_id: max(1, -(-cores * size_bytes // total)) for log_id, size_bytes in sizes.items()}


def _splits(log: MasterLog, log_id: str, batch: OffsetRange, cores: int) -> Sequence[Planned]:
    try:
        return [PlannedSplit(log_id, batch, owned) for owned in log.plan(batch, cores=cores)]
    except Exception as error:  # noqa: BLE001 - an error of one log must not end the others
        return [PlanFailed(log_id, of_log(error, log_id))]


def shares(backlogs: Mapping[str, int], budget_bytes: int) -> dict[str, int]:
    """Return how many bytes each log may read of a batch of `budget_bytes`: at least 1 for each with a backlog.

    They are equal, and what the small ones leave over goes to the others. Sizes are bytes of the masters' logs. No
    share exceeds its backlog, and a share below its backlog is as large as any other, give or take a byte.
    The shares add up to `budget_bytes`, or to everything there is; to more only if there are more logs than bytes, as
    each gets one. A log without a backlog has no share.
    """
    waiting = sorted(((size, log) for log, size in backlogs.items() if size > 0))
    found: dict[str, int] = {}
    left = budget_bytes
    for served, (size, log) in enumerate(waiting):
        found[log] = max(1, min(size, left // (len(waiting) - served)))
        left = max(0, left - found[log])
    return found
