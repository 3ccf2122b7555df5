"""Write what the holes of a log owe to its ledger. Driver only.

The holes' metadata has three things, each written in the commit that made it true: the ledger rows of the newest fill;
the ranges that a repair took out, a repair of this log or of another that had rows in the same damaged file; and the
hole at the front, whose rows the replica's own retention deleted. Every fill and repair of the log first brings the
ledger in line with them, and so does that repair or retention itself, whatever was killed before.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sinks.books.ledger import Ledger
from sinks.books.ledger_rows import LedgerRows
from sinks.state.position import Held, LogTable


def settle_holes(ledger: Ledger, rows: LedgerRows, table: LogTable, held: Held) -> None:
    """Write what the holes of `held` owe to the ledger, unless it is there. Raises ReplicaError."""
    position = None if held.state is None else table.position_of(held.state)
    if position is None:
        return
    ledger.append_fill(position, held.holes.fills, held.holes.ledger)
    if held.holes.taken_out:
        rows.take_out_of(lambda: table.read().holes.taken_out)
    if held.holes.front:
        rows.set_deleted(lambda: table.read().holes.forgotten, datetime.now(UTC))
