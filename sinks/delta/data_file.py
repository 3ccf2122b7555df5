"""What the commit that names a data file of a Delta table has to know about it. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataFile:
    """A complete file of a table, ready to be committed."""

    name: str  # within the table's folder
    size_bytes: int
    modified_ms: int
    records: int
    statistics: str  # JSON of an add action's `stats`
