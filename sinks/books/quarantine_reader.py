"""Read the quarantine of a log by offset: the master's bytes that are no sound records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sinks.delta.delta_log import StoredFile, newest
from sinks.delta.file_statistics import bounds, may_hold
from sinks.delta.files import open_parquet
from sinks.storage.errors import failed_by
from sinks.tables import LOG_ID, QUARANTINE
from sinks.warehouse import absolute
from sources.offsets import LogId, OffsetRange

_COLUMNS = [LOG_ID.name, "offset", "end", "cause", "bytes"]
_PIECES_AT_ONCE = 16  # each may be as large as a record


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A piece of the quarantine: where it was in the master's log, why it is here, and how it begins."""

    range: OffsetRange
    cause: str
    head: bytes


def quarantined(warehouse: str, log_id: LogId, wanted: OffsetRange, head_bytes: int) -> list[Quarantined]:
    """The pieces that have bytes in `wanted`, by offset, with at most `head_bytes` of each.

    Empty if there is no table. Raises ReplicaError naming the file that cannot be read.
    """
    folder = QUARANTINE.path(absolute(warehouse))
    version = newest(folder)
    files = (file for file in ({} if version is None else version.files).values() if _may_hold(file, log_id, wanted))
    found = [piece for file in files for piece in _read(folder, file.path, log_id, wanted, head_bytes)]
    return sorted(found, key=lambda piece: piece.range)


def _may_hold(file: StoredFile, log_id: LogId, wanted: OffsetRange) -> bool:
    statistics = file.statistics()
    (first, _), (_, last) = bounds(statistics, "offset"), bounds(statistics, "end")
    is_before, is_behind = last is not None and last <= wanted.start, first is not None and first >= wanted.end
    return may_hold(statistics, LOG_ID.name, str(log_id)) and not is_before and not is_behind


def _read(folder: str, name: str, log_id: LogId, wanted: OffsetRange, head_bytes: int) -> Iterator[Quarantined]:
    is_wanted = (pc.field(LOG_ID.name) == str(log_id)) & (pc.field("offset") < wanted.end)
    is_wanted &= pc.field("end") > wanted.start
    try:
        with open_parquet(folder, name) as file:
            for batch in file.iter_batches(_PIECES_AT_ONCE, columns=_COLUMNS):
                yield from _pieces(pa.Table.from_batches([batch]).filter(is_wanted), head_bytes)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise failed_by(error)(
            f"the data file {folder}/{name} cannot be read",
            log=log_id,
            found=error,
            hint="Restore the file from a copy. No record and no position depends on the quarantine.",
        ) from error


def _pieces(rows: pa.Table, head_bytes: int) -> Iterator[Quarantined]:
    heads = pc.binary_slice(rows["bytes"], 0, head_bytes).to_pylist()
    for start, end, cause, head in zip(*(rows[name].to_pylist() for name in _COLUMNS[1:4]), heads, strict=True):
        yield Quarantined(OffsetRange(start, end), cause, head)
