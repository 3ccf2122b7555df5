"""The ledger: one row for each range that a commit to the log table contains.

The row follows the acknowledgement, because producers wait for data and not for bookkeeping. It cannot be lost for
all that: the rows of the newest commit are also in the log's domain metadata, from where the next start restores them.
An append is idempotent by a transaction version of its own, equal to the end of the newest range in the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from sinks.files import DataFile, FileWriter, discard, new_name
from sinks.kernel import KernelConflict, KernelTable, Snapshot
from sinks.tables import LEDGER, LEDGER_SCHEMA
from sources.errors import ReplicaError
from sources.offsets import Offset, OffsetRange, Position

STREAM = "stream"
BACKFILL = "backfill"
REPAIR = "repair"
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """A committed range. Times are microseconds since 1970, UTC; those of the store are None without a message."""

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


def app_id(position: Position) -> str:
    """The Delta application whose transaction version is the end of the newest range of the log in the ledger."""
    return f"logtwin/ledger/{position.log_id}@{position.epoch}"


class Ledger:
    """The ledger table. Driver only."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._table = KernelTable(spark, path)

    def append(self, position: Position, rows: Sequence[LedgerRow]) -> bool:
        """Add the rows of the commit that led to `position`, unless they are there. Returns whether it added them."""
        if not rows:
            return False
        file: DataFile | None = None
        for _ in range(_ATTEMPTS):
            snapshot = self._snapshot()
            if (snapshot.transaction_version(app_id(position)) or 0) >= position.offset:
                self._discard(file)
                return False
            file = file or self._write(position, rows)
            try:
                self._table.commit(snapshot, [file], transaction=(app_id(position), position.offset))
            except KernelConflict:
                continue
            return True
        raise self._failure(position, f"a conflict at each of {_ATTEMPTS} attempts")

    def run_hooks(self) -> None:
        self._table.run_hooks()

    def _snapshot(self) -> Snapshot:
        snapshot = self._table.snapshot()
        if snapshot is None:
            raise ReplicaError(
                f"the table {self._table.path} is gone", hint="Restore it, or start with a new warehouse."
            )
        return snapshot

    def _write(self, position: Position, rows: Sequence[LedgerRow]) -> DataFile:
        values = [{"log_id": str(position.log_id), "epoch": position.epoch, **row.as_dict()} for row in rows]
        batch = pa.RecordBatch.from_pylist(values, schema=LEDGER_SCHEMA.remove_metadata())
        try:
            with FileWriter(LEDGER, self._table.path, new_name(rows[0].start)) as writer:
                writer.write(batch)
                return writer.finish()
        except OSError as error:
            raise self._failure(position, str(error)) from error

    def _discard(self, file: DataFile | None) -> None:
        if file is not None:
            discard(self._table.path, [file.name])

    def _failure(self, position: Position, found: str) -> ReplicaError:
        return ReplicaError(
            "the ledger rows of a commit cannot be written",
            log=position.log_id,
            offset=position.offset,
            found=found,
            hint="The data itself is committed and acknowledged; the rows are restored at the next start.",
        )
