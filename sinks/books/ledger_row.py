"""A row of the ledger: one committed range of a log. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from sources.offsets import LogId, Offset, OffsetRange

STREAM = "stream"
BACKFILL = "backfill"
REPAIR = "repair"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """A committed range. Times are microseconds since 1970, UTC; store timestamps are None if it has no message."""

    start: Offset
    end: Offset
    records: int
    bytes: int
    checksum: str
    first_store_timestamp: int | None
    last_store_timestamp: int | None
    committed_at: int
    origin: str = STREAM
    deleted_at: int | None = None

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.start, self.end)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LedgerRow:
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A row of the ledger, with its log and the log's history that it belongs to."""

    log_id: LogId
    epoch: int
    row: LedgerRow
