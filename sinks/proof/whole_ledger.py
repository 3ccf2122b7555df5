"""The ledger of one log, read whole and quickly. Driver only.

The stream adds a file a commit, 86,400 a day until maintenance merges them. A file of one row is known by its
statistics alone, and those are all in the Delta log, which Spark reads at once: through Kernel each of them would cost
a millisecond, and opening the file another. Only files of several rows are opened. Times are good to the millisecond,
as statistics have them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sinks.file_statistics import holds_only, may_hold
from sinks.ledger import LedgerRow
from sinks.place import open_folder
from sinks.proof.completeness import COLUMNS
from sinks.spark_jobs import first_line
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


def read_ledger(spark: SparkSession, warehouse: str, log_id: LogId, owed: Iterable[Owed]) -> pa.Table:
    """The rows of `log_id` (`completeness.COLUMNS`), in any order, and those that the ledger is still `owed`.

    Raises ReplicaError.
    """
    path = LEDGER.path(absolute(warehouse))
    try:
        snapshot = _snapshot(spark, path)
        files = DataFrame(snapshot.allFiles().toDF(), spark).select("path", "stats").toArrow()
        late = [one for one in owed if _transaction(snapshot, one.app_id) < one.version]
        return pa.concat_tables([*_rows(path, files, log_id), *(_table(one.rows) for one in late)])
    except (PySparkException, Py4JError, OSError, pa.ArrowException) as error:
        raise failed_by(error)(
            f"the table {path} cannot be read",
            log=log_id,
            found=first_line(error),
            hint="Check that the table's storage can be reached; a file that is gone has to be restored.",
        ) from error


def _snapshot(spark: SparkSession, path: str) -> Any:
    """The newest version, as delta-spark holds it."""
    jvm = cast(Any, spark._jvm)
    return jvm.org.apache.spark.sql.delta.DeltaLog.forTableWithSnapshot(spark._jsparkSession, path)._2()


def _transaction(snapshot: Any, app_id: str) -> int:
    found = snapshot.transactions().get(app_id)
    return int(found.get()) if found.isDefined() else 0


def _rows(path: str, files: pa.Table, log_id: LogId) -> list[pa.Table]:
    known: list[dict[str, Any]] = []
    others: list[str] = []
    for name, text in zip(files["path"].to_pylist(), files["stats"].to_pylist(), strict=True):
        statistics = json.loads(text or "{}")
        if _is_one_row(statistics, log_id):
            known.append({column: statistics["minValues"].get(column) for column in COLUMNS})
        elif may_hold(statistics, LOG_ID.name, str(log_id)):
            others.append(unquote(name))
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
