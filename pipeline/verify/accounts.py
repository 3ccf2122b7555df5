"""What is there to be verified: one version of the log table, and what ledger and holes say of it. Driver only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from pipeline.verify.plan import claims_of
from sinks.delta.kernel import KernelTable
from sinks.healing.ledger_rows import LedgerRows
from sinks.proof.proven import proven_ranges
from sinks.proof.stored import Part, parts
from sinks.proof.verdicts import Claim
from sinks.state.holes import Holes
from sinks.state.position import Held, LogTable
from sinks.tables import log_table
from sinks.warehouse import absolute
from sources.errors import ConfigurationError, CoverageError
from sources.offsets import END, LogId, Offset, OffsetRange

_LOOKS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """Of one log: the claims of its tables, and the files that may hold rows in `reach`, which is what was wanted."""

    folder: str
    version: int
    epoch: int
    position: Offset
    holes: Holes
    reach: OffsetRange
    claims: Sequence[Claim]
    parts: Sequence[Part]


def read_accounts(spark: SparkSession, warehouse: str, log_id: LogId, start: int | None, end: int | None) -> Accounts:
    """What is claimed of [start, end), by default of everything; without an `end` also that nothing is beyond.

    The two tables are read one after the other: where a repair ran between, they are read again.
    Raises ConfigurationError where there is no replica, CoverageError where its tables contradict each other.
    """
    folder = log_table(log_id).path(absolute(warehouse))
    table = LogTable(spark, folder, log_id)
    reach = OffsetRange(Offset(start or 0), END if end is None else Offset(end))
    for look in range(_LOOKS):
        held = table.read()
        table.refuse_repair(held.state)
        try:
            return _accounts(spark, warehouse, log_id, held, reach)
        except CoverageError:
            if look == _LOOKS - 1:
                raise
    raise AssertionError("unreachable")


def _accounts(spark: SparkSession, warehouse: str, log_id: LogId, held: Held, reach: OffsetRange) -> Accounts:
    state, folder = held.state, log_table(log_id).path(absolute(warehouse))
    if state is None or state.offset is None:
        raise ConfigurationError(
            "there is nothing to verify",
            log=log_id,
            expected=f"records of the log in {folder}",
            found="none",
            hint="Check warehouse and the id of the log.",
        )
    below = OffsetRange(Offset(0), state.offset)
    ledger = LedgerRows(spark, warehouse, log_id).overlapping(below)
    rows = proven_ranges(log_id, ledger, state.ledger + held.holes.ledger, held.holes, state.offset)
    nothing_beyond = OffsetRange(state.offset, END)
    return Accounts(
        folder=folder,
        version=held.snapshot.version,
        epoch=state.epoch,
        position=state.offset,
        holes=held.holes,
        reach=reach,
        claims=claims_of(rows, [*held.holes.ranges, nothing_beyond], reach),
        parts=parts(KernelTable(spark, folder), held.snapshot, log_id, reach),
    )
