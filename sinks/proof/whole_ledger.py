"""The ledger of one log, read whole and quickly. Driver only.

The stream adds a file a commit, 86,400 a day until maintenance merges them. A file of one row is known by its
statistics alone, and those are all in the Delta log, which is read at once (`sinks/delta_log.py`): through Kernel each
of them would cost a millisecond, and opening the file another. Only files of several rows are opened. Times are good to
the millisecond, as statistics have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sinks.delta_log import StoredFile, newest
from sinks.file_statistics import holds_only, may_hold
from sinks.ledger import LedgerRow
from sinks.place import open_folder
from sinks.proof.completeness import COLUMNS
from sinks.storage_errors import failed_by
from sinks.tables import LEDGER, LEDGER_SCHEMA, LOG_ID
from sinks.warehouse import absolute
from sources.offsets import LogId

_ROWS = pa.schema([LEDGER_SCHEMA.field(name) for name in COLUMNS]).remove_metadata()
_IN_NUMBERS = pa.schema([(name, pa.int64()) for name in COLUMNS])
_AS_STATISTICS = pa.schema(
    [pa.field(field.name, pa.string() if pa.types.is_timestamp(field.type) else field.type) for field in _ROWS]
)


@dataclass(frozen=True, slots=True)
class Owed:
    """Rows that follow a commit of the log; they are in the ledger once `app_id`'s transaction is at `version`."""

    app_id: str
    version: int
    rows: Sequence[LedgerRow]


def read_ledger(warehouse: str, log_id: LogId, owed: Iterable[Owed]) -> pa.Table:
    """The rows of `log_id` (`completeness.COLUMNS`), in any order, and those that the ledger is still `owed`.

    Raises ReplicaError.
    """
    path = LEDGER.path(absolute(warehouse))
    try:
        version = newest(path)
        if version is None:
            raise FileNotFoundError("there is no such table")
        late = [one for one in owed if (version.transaction_version(one.app_id) or 0) < one.version]
        rows = _rows(path, version.files.values(), log_id)
        return pa.concat_tables([*rows, *(_table(one.rows) for one in late)])
    except (OSError, pa.ArrowException) as error:
        raise failed_by(error)(
            f"the table {path} cannot be read",
            log=log_id,
            found=error,
            hint="Check that the table's storage can be reached; a file that is gone has to be restored.",
        ) from error


def _rows(path: str, files: Iterable[StoredFile], log_id: LogId) -> list[pa.Table]:
    known: list[dict[str, Any]] = []
    others: list[str] = []
    for file in files:
        statistics = file.statistics()
        if _is_one_row(statistics, log_id):
            known.append({column: statistics["minValues"].get(column) for column in COLUMNS})
        elif may_hold(statistics, LOG_ID.name, str(log_id)):
            others.append(file.path)
    return [pa.Table.from_pylist(known, schema=_AS_STATISTICS).cast(_ROWS), _read(path, others, log_id)]


def _is_one_row(statistics: dict[str, Any], log_id: LogId) -> bool:
    """Whether a file has one row, of this log, and of each column statistics say what is in it, or that nothing is."""
    least, nulls = statistics.get("minValues", {}), statistics.get("nullCount", {})
    is_known = all(name in least or nulls.get(name) == 1 for name in COLUMNS)
    return statistics.get("numRecords") == 1 and is_known and holds_only(statistics, LOG_ID.name, str(log_id))


def _read(path: str, names: Sequence[str], log_id: LogId) -> pa.Table:
    filesystem, folder = open_folder(path)
    paths = [f"{folder.rstrip('/')}/{name}" for name in names]
    # Spark may have written timestamps as INT96
    parquet = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
    files = ds.dataset(paths, schema=LEDGER_SCHEMA.remove_metadata(), format=parquet, filesystem=filesystem)
    return files.to_table(columns=list(COLUMNS), filter=pc.field(LOG_ID.name) == str(log_id)).cast(_ROWS)


def _table(rows: Sequence[LedgerRow]) -> pa.Table:
    return pa.Table.from_pylist([row.as_dict() for row in rows], schema=_IN_NUMBERS).cast(_ROWS)
