"""The ledger of one log, read back by offset, and rows taken out of it. Driver only, without a Spark job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sinks.books.ledger_row import LedgerRow
from sinks.delta.kernel import KernelTable, Overlap
from sinks.delta.retries import retrying
from sinks.healing.rewrite import Rows, TakingOut, rows_of
from sinks.tables import LEDGER, LOG_ID, in_numbers
from sinks.warehouse import absolute
from sources.errors import ReplicaError
from sources.offsets import LogId, OffsetRange

_SCHEMA = LEDGER.schema.remove_metadata()
_IN_NUMBERS = in_numbers(_SCHEMA)


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
        rows = self._rows((wanted,), pc.field("deleted_at").is_null())
        snapshot = self._table.existing(self._log_id)
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
        return retrying(self._refused)(self._exchange, lambda: ((wanted,), condition))

    def take_out_of(self, holes: Callable[[], Sequence[OffsetRange]]) -> int:
        """Remove the rows that claim offsets in what `holes` gives, and say nothing of a deletion; returns how many.

        `holes` is asked after the ledger was looked at: what it still gives then no row that was seen has filled.
        Raises ReplicaError.
        """
        return retrying(self._refused)(self._exchange, lambda: (holes(), pc.field("deleted_at").is_null()))

    def _refused(self, found: str) -> ReplicaError:
        return ReplicaError(
            "the rows of removed ranges cannot be taken out of the ledger",
            log=self._log_id,
            found=found,
            hint="Run it again: it goes on where it stopped.",
        )

    def _exchange(self, chosen: Callable[[], tuple[Sequence[OffsetRange], pc.Expression]]) -> int:
        snapshot = self._table.existing(self._log_id)
        exchange = TakingOut(self._table, LEDGER, self._rows(*chosen())).on(snapshot)
        if exchange.removed:
            self._table.replace(
                snapshot, exchange.removed, [({}, file) for file in exchange.added], domains={}, over_appends=True
            )
            self._table.run_hooks()
        return exchange.rows

    def _rows(self, wanted: Sequence[OffsetRange], condition: pc.Expression) -> Rows:
        each = ((pc.field("start") < one.end) & (pc.field("end") > one.start) for one in wanted)
        overlaps = reduce(or_, each, pc.scalar(False))
        return Rows(
            places=tuple((self._log_id, Overlap(one, "start", "end")) for one in wanted),
            columns=(LOG_ID.name, "epoch", "start", "end", "deleted_at"),
            condition=(pc.field(LOG_ID.name) == str(self._log_id)) & overlaps & condition,
            holds_all=lambda file: False,
            owns=lambda file, on: False,
        )
