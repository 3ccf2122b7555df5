"""What a commit says of a data file, and its statistics, which let queries skip it: per column least, greatest, nulls.

They are JSON as in the Delta protocol, "Per-file Statistics". A bound that is too wide costs a read; one that is too
narrow loses rows. So each value that cannot be written exactly is rounded outwards:

    timestamps   milliseconds: minimum down, maximum up (Delta itself cuts both and has readers add a millisecond;
                 a reader that does not add it would lose rows)
    strings      at most MAX_STRING_CHARS characters: minimum cut (a prefix sorts before the whole), maximum cut and
                 followed by the greatest character there is
    log ids      whole, however long: repairs, deletions and merges tell by them whose rows a file has
    neither fits then the bound is left out, and the file is never skipped by that column

Read bounds of strings through `may_hold` and `holds_only`: files of older versions, and those that OPTIMIZE wrote, have
log ids cut as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sources.readable import instant

MAX_STRING_CHARS = 32
GREATEST_CHARACTER = "\U0010ffff"
_WHOLE = ("log_id",)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A complete file of a table, ready to be committed."""

    name: str  # within the table's folder
    size_bytes: int
    modified_ms: int
    records: int
    statistics: str  # JSON of an add action's `stats`


@dataclass(slots=True)
class ColumnRange:
    """The least and greatest value of one column so far, None before the first. Timestamps are in microseconds."""

    nulls: int = 0
    least: Any = None
    greatest: Any = None

    def add(self, values: pa.Array) -> None:
        self.nulls += values.null_count
        if values.null_count == len(values):
            return
        if pa.types.is_timestamp(values.type):
            values = values.view(pa.int64())
        least, greatest = _ends(values)
        # Python orders strings by code point, which is the order of their UTF-8 bytes
        self.least = least if self.least is None else min(self.least, least)
        self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)


def _ends(values: pa.Array) -> tuple[Any, Any]:
    """The least and the greatest of `values`, at least one of which is not null."""
    if pa.types.is_integer(values.type) and not values.null_count:  # many logs have a few rows each
        numbers = values.to_numpy()
        return int(numbers.min()), int(numbers.max())
    found = pc.min_max(values).as_py()
    return found["min"], found["max"]


@dataclass(slots=True)
class Statistics:
    """The statistics of one file, collected from its batches. Every batch has all `columns`."""

    columns: Sequence[str]
    records: int = 0
    _ranges: dict[str, ColumnRange] = field(default_factory=dict)
    _types: dict[str, pa.DataType] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        self.records += batch.num_rows
        for name in self.columns:
            self._types[name] = batch.schema.field(name).type
            self._ranges.setdefault(name, ColumnRange()).add(batch.column(name))

    def as_json(self) -> str:
        """The `stats` of an add action."""
        least: dict[str, Any] = {}
        greatest: dict[str, Any] = {}
        for name, found in self._ranges.items():
            if found.least is not None:
                is_whole, kind = name in _WHOLE, self._types[name]
                _keep(least, name, found.least if is_whole else lower_bound(found.least, kind))
                _keep(greatest, name, found.greatest if is_whole else upper_bound(found.greatest, kind))
        nulls = {name: found.nulls for name, found in self._ranges.items()}
        return json.dumps(
            {"numRecords": self.records, "minValues": least, "maxValues": greatest, "nullCount": nulls},
            ensure_ascii=False,
            separators=(",", ":"),
        )


def _keep(bounds: dict[str, Any], name: str, bound: Any) -> None:
    if bound is not None:
        bounds[name] = bound


def lower_bound(least: Any, kind: pa.DataType) -> Any:
    """A JSON value at or below `least`; None if there is none. Timestamps are given in microseconds."""
    if pa.types.is_timestamp(kind):
        return _timestamp(least // 1000)
    if pa.types.is_string(kind):
        return least[:MAX_STRING_CHARS]
    return least


def upper_bound(greatest: Any, kind: pa.DataType) -> Any:
    """A JSON value at or above `greatest`; None if there is none. Timestamps are given in microseconds."""
    if pa.types.is_timestamp(kind):
        return _timestamp(-(-greatest // 1000))
    if pa.types.is_string(kind):
        return _cut_upwards(greatest)
    return greatest


def may_hold(statistics: Mapping[str, Any], column: str, text: str) -> bool:
    least, greatest = bounds(statistics, column)
    return (least is None or least <= text) and (greatest is None or text <= greatest)


def holds_only(statistics: Mapping[str, Any], column: str, text: str) -> bool:
    """Whether all rows of a file with these statistics are proven to have `text` in `column`.

    This is safe even if bounds may be cut: a cut maximum ends with the greatest character, so the two bounds are equal
    only if neither was cut.
    """
    return bounds(statistics, column) == (text, text) and not statistics.get("nullCount", {}).get(column)


def bounds(statistics: Mapping[str, Any], column: str) -> tuple[Any, Any]:
    """The least and greatest value of a column in the statistics of an add action, each None if they do not say."""
    return statistics.get("minValues", {}).get(column), statistics.get("maxValues", {}).get(column)


def _cut_upwards(text: str) -> str:
    if len(text) <= MAX_STRING_CHARS:
        return text
    # Text that continues with the greatest character itself would sort above the cut, so it stays whole.
    return text if text[MAX_STRING_CHARS] == GREATEST_CHARACTER else text[:MAX_STRING_CHARS] + GREATEST_CHARACTER


def _timestamp(milliseconds: int) -> str | None:
    """ISO 8601 in UTC with milliseconds; None outside the years 1 to 9999, which the format cannot carry."""
    at = instant(milliseconds * 1000)
    return None if at is None else at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
