"""The splits of a batch: what tasks read of each log, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sources.errors import of_log
from sources.group.offsets import GroupOffset
from sources.master import MasterLog, PlanFailed, Planned, PlannedSplit
from sources.offsets import OffsetRange


def planned(offset: GroupOffset, logs: Mapping[str, MasterLog], cores: int) -> list[Planned]:
    """Return the splits of the batch `offset` in the order of its logs, for `cores` tasks at once; then its errors.

    Logs that are not in `logs`, by log id, are left out. Logs of files may be read to find records' ends.
    """
    batches = {log_id: batch for log_id, batch in offset.batches.items() if log_id in logs}
    shares = _cores(logs, batches, cores)
    splits = [split for at, batch in batches.items() for split in _splits(logs[at], at, batch, shares[at])]
    return splits + [PlanFailed(log_id, error) for log_id, error in offset.errors.items() if log_id in logs]


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
