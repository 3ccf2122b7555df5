"""A row of the ledger: one committed range of a log. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final

from sources.offsets import LogId, Offset, OffsetRange

STREAM = "stream"
BACKFILL = "backfill"
REPAIR = "repair"
JOINED = "joined"
"""Ranges of the stream that upkeep has joined (`sinks/upkeep/ledger.py`)."""


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
        return {name: getattr(self, name) for name in _NAMES}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LedgerRow:
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})


_NAMES: Final = tuple(one.name for one in fields(LedgerRow))
_NEEDED: Final = len([one for one in fields(LedgerRow) if one.default is MISSING])


def values_of(row: LedgerRow) -> list[Any]:
    """The row in few words: its values in the order of the fields, without the last ones where they are the usual."""
    values = [getattr(row, name) for name in _NAMES]
    return values[:_NEEDED] if (row.origin, row.deleted_at) == (STREAM, None) else values


def from_values(values: Sequence[Any]) -> dict[str, Any]:
    """The fields of the row with these `values_of`. Raises ValueError where there are too few or too many."""
    if not _NEEDED <= len(values) <= len(_NAMES):
        raise ValueError(f"a row of the ledger has {len(_NAMES)} values: {values}")
    return dict(zip(_NAMES, values, strict=False))


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A row of the ledger, with its log and the log's history that it belongs to."""

    log_id: LogId
    epoch: int
    row: LedgerRow
