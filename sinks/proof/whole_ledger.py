"""The ledger of a log, read whole and quickly.

The stream adds a file a commit, 86,400 a day until maintenance merges them. A file of one row is known by its
statistics alone, and those are all in the Delta log, which is read at once (`sinks/delta/delta_log.py`): through Kernel
each of them would cost a millisecond, and opening the file another. Only files of several rows are opened. Times are
good to the millisecond, as statistics have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sinks.delta.data_file import holds_only, may_hold
from sinks.delta.delta_log import LoggedVersion, newest
from sinks.delta.files import dataset_of
from sinks.proof.completeness import COLUMNS
from sinks.storage.errors import reported_as
from sinks.tables import LEDGER, LEDGER_SCHEMA, LOG_ID
from sinks.values.ledger_row import LedgerRow
from sinks.warehouse import absolute
from sources.offsets import LogId, OffsetRange

_ROWS = pa.schema([LEDGER_SCHEMA.field(name) for name in COLUMNS]).remove_metadata()
_IN_NUMBERS = pa.schema([(name, pa.int64()) for name in COLUMNS])
_AS_STATISTICS = pa.schema(
    [pa.field(field.name, pa.string() if pa.types.is_timestamp(field.type) else field.type) for field in _ROWS]
)


_Told = tuple[str, dict[str, Any]]
"""A file, by its name, and its statistics."""


@dataclass(frozen=True, slots=True)
class Owed:
    """Rows that follow a commit of the log; they are in the ledger once `app_id` is at `version` there."""

    app_id: str
    version: int
    rows: Sequence[LedgerRow]


def read_ledger(warehouse: str, log_id: LogId, owed: Iterable[Owed]) -> pa.Table:
    """The rows of `log_id` (`completeness.COLUMNS`), in any order, and those that the ledger is still `owed`.

    Raises ReplicaError.
    """
    return read_ledgers(warehouse, {log_id: owed})[log_id]


def read_ledgers(warehouse: str, owed: Mapping[LogId, Iterable[Owed]]) -> dict[LogId, pa.Table]:
    """Read the ledgers of several logs at one version, with what each is still `owed`. Raises ReplicaError."""
    path = LEDGER.path(absolute(warehouse))
    version = newest(path)
    files = [] if version is None else [(one.path, one.statistics()) for one in version.files.values()]
    return {log_id: _of_log(path, version, files, log_id, several) for log_id, several in owed.items()}


def stored_through_us(ledger: pa.Table, whole: OffsetRange) -> int | None:
    """When the newest message of the ranges of a ledger that lie in `whole` was stored: microseconds since 1970, UTC.

    None where there is no message, or no such range.
    """
    within = ledger.filter(
        pc.and_(pc.greater_equal(ledger["start"], whole.start), pc.less_equal(ledger["end"], whole.end))
    )
    newest_us: int | None = pc.max(within["last_store_timestamp"].cast(pa.int64())).as_py()
    return newest_us


def _of_log(
    path: str, version: LoggedVersion | None, files: Sequence[_Told], log_id: LogId, owed: Iterable[Owed]
) -> pa.Table:
    with reported_as(
        f"the table {path} cannot be read",
        log=log_id,
        hint="Check that the table's storage can be reached; a file that is gone has to be restored.",
    ):
        if version is None:
            raise FileNotFoundError("there is no such table")
        late = [one for one in owed if _told(version, one.app_id) < one.version]
        return pa.concat_tables([*_rows(path, files, log_id), *(_table(one.rows) for one in late)])


def _told(version: LoggedVersion, app_id: str) -> int:
    """Read how far the ledger follows, as `FollowingTable` writes it."""
    return int(version.domain(app_id) or version.transaction_version(app_id) or 0)


def _rows(path: str, files: Sequence[_Told], log_id: LogId) -> list[pa.Table]:
    known: list[dict[str, Any]] = []
    others: list[str] = []
    for name, statistics in files:
        if _is_one_row(statistics, log_id):
            known.append({column: statistics["minValues"].get(column) for column in COLUMNS})
        elif may_hold(statistics, LOG_ID.name, str(log_id)):
            others.append(name)
    return [pa.Table.from_pylist(known, schema=_AS_STATISTICS).cast(_ROWS), _read(path, others, log_id)]


def _is_one_row(statistics: dict[str, Any], log_id: LogId) -> bool:
    """Whether a file has one row, of this log, and of each column statistics say what is in it, or that nothing is."""
    least, nulls = statistics.get("minValues", {}), statistics.get("nullCount", {})
    is_known = all(name in least or nulls.get(name) == 1 for name in COLUMNS)
    return statistics.get("numRecords") == 1 and is_known and holds_only(statistics, LOG_ID.name, str(log_id))


def _read(path: str, names: Sequence[str], log_id: LogId) -> pa.Table:
    return (
        dataset_of(path, names, LEDGER_SCHEMA)
        .to_table(columns=list(COLUMNS), filter=pc.field(LOG_ID.name) == str(log_id))
        .cast(_ROWS)
    )


def _table(rows: Sequence[LedgerRow]) -> pa.Table:
    return pa.Table.from_pylist([row.as_dict() for row in rows], schema=_IN_NUMBERS).cast(_ROWS)
