"""The ledger of one log, read back by offset, and rows taken out of it. Driver only, without a Spark job."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from sinks.healing.rewrite import Rows, TakingOut, rows_of
from sinks.kernel import KernelConflict, KernelTable, Overlap, Snapshot
from sinks.ledger import LedgerRow
from sinks.tables import LEDGER, LOG_ID
from sinks.warehouse import absolute
from sources.errors import ReplicaError
from sources.offsets import LogId, OffsetRange

_ATTEMPTS = 10
_SCHEMA = LEDGER.schema.remove_metadata()
_IN_NUMBERS = pa.schema(
    [pa.field(field.name, pa.int64() if pa.types.is_timestamp(field.type) else field.type) for field in _SCHEMA]
)
"""Times as microseconds since 1970, as `LedgerRow` has them."""


class LedgerRows:
    """The rows of one log in the table ledger."""

    def __init__(self, spark: SparkSession, warehouse: str, log_id: LogId) -> None:
        self._table = KernelTable(spark, LEDGER.path(absolute(warehouse)))
        self._log_id = log_id

    def overlapping(self, wanted: OffsetRange) -> list[LedgerRow]:
        """The ranges that have offsets in `wanted` and whose records are in the table log, in order.

        Raises ReplicaError.
        """
        if wanted.is_empty:
            return []
        rows = self._rows(wanted, pc.field("deleted_at").is_null())
        snapshot = self._snapshot()
        batches = (
            batch.filter(rows.condition)
            for file in rows.files(self._table, snapshot)
            for batch in rows_of(self._table.path, LEDGER, file, self._log_id)
        )
        found = pa.Table.from_batches(batches, _SCHEMA).cast(_IN_NUMBERS).to_pylist()
        return sorted(map(LedgerRow.from_dict, found), key=lambda row: row.range)

    def take_out(self, wanted: OffsetRange, condition: pc.Expression) -> int:
        """Remove the rows that have offsets in `wanted` and meet `condition`. Returns how many; 0 where they are gone.

        Raises ReplicaError.
        """
        retrying = Retrying(
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.02, max=0.5),
            retry=retry_if_exception_type(KernelConflict),
        )
        try:
            removed: int = retrying(self._exchange, TakingOut(self._table, LEDGER, self._rows(wanted, condition)))
        except RetryError as error:
            raise ReplicaError(
                "the rows of removed ranges cannot be taken out of the ledger",
                log=self._log_id,
                offset=wanted.start,
                found=f"a conflict at each of {_ATTEMPTS} attempts",
                hint="Run it again: it goes on where it stopped.",
            ) from error
        return removed

    def _exchange(self, taking: TakingOut) -> int:
        snapshot = self._snapshot()
        exchange = taking.on(snapshot)
        if exchange.removed:
            self._table.replace(
                snapshot, exchange.removed, [({}, file) for file in exchange.added], domains={}, over_appends=True
            )
            self._table.run_hooks()
        return exchange.rows

    def _rows(self, wanted: OffsetRange, condition: pc.Expression) -> Rows:
        overlaps = (pc.field("start") < wanted.end) & (pc.field("end") > wanted.start)
        return Rows(
            log_id=self._log_id,
            overlap=Overlap(wanted, "start", "end"),
            columns=(LOG_ID.name, "epoch", "start", "end", "deleted_at"),
            condition=(pc.field(LOG_ID.name) == str(self._log_id)) & overlaps & condition,
            holds_all=lambda file: False,
        )

    def _snapshot(self) -> Snapshot:
        snapshot = self._table.snapshot()
        if snapshot is None:
            raise ReplicaError(f"the table {self._table.path} is gone", log=self._log_id, hint="Restore it.")
        return snapshot
