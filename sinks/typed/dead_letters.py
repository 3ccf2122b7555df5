"""The dead letters of typed tables, in the table `unfit`: each once, and before the commit that passes them.

There is no commit over two tables. So they come first, with the positions that their step goes to, in the domain
metadata ``logtwin.table.<name>`` of `unfit`. Where that is ahead of the typed table a step was killed in between: the
next one goes to the very same positions, and finds its dead letters there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Final

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sinks.files import DataFile
from sinks.healing.rewrite import Rows, TakingOut
from sinks.holes import joined
from sinks.kernel import KernelTable, Overlap, Snapshot
from sinks.retries import until_it_takes
from sinks.tables import LOG_ID, UNFIT
from sinks.typed.state import TypedState, Way
from sinks.warehouse import absolute, ensure_table
from sources.offsets import END, LogId, Offset, OffsetRange

_NEVER: Final = 1 << 31


class DeadLetters:
    """Of one typed table. Driver only. Raises ReplicaError, KernelConflict."""

    def __init__(self, spark: SparkSession, warehouse: str, name: str, *, anew: bool = False) -> None:
        """Of one that is made `anew`, beside the one that there is."""
        self.path = UNFIT.path(absolute(warehouse))
        self._name = name
        self._table = KernelTable(spark, self.path)
        self._domain = f"logtwin.table.{name}{'.anew' if anew else ''}"

    def ensure(self) -> None:
        """Make the table unless it is there. Raises ConfigurationError where it is not ours."""
        ensure_table(self._table, UNFIT)

    def announced(self) -> TypedState | None:
        """Where the last step went that wrote here; None where none did."""
        return self._announced(self._table.snapshot())

    def bring(self, files: Sequence[DataFile], to: TypedState, ways: dict[LogId, Way]) -> None:
        """Of the step that goes to `to` by `ways`: what it takes out goes, `files` come; once."""
        out = {log_id: ranges for log_id, one in ways.items() if (ranges := _out(one))}
        if files or out:
            self._exchange(files, to, out)

    def clear(self, logs: Sequence[LogId], *, since: int = 0, before: int = _NEVER) -> None:
        """Nothing stays of the generations from `since` on and `before` another."""
        if self._table.snapshot() is not None and logs:
            everything = (OffsetRange(Offset(0), END),)
            self._exchange((), None, dict.fromkeys(logs, everything), since, before)

    def _exchange(
        self,
        files: Sequence[DataFile],
        to: TypedState | None,
        out: dict[LogId, tuple[OffsetRange, ...]],
        since: int = 0,
        before: int = _NEVER,
    ) -> None:
        taking = TakingOut(self._table, UNFIT, self._rows(out, since, before)) if out else None

        def attempt() -> None:
            on = self._table.existing()
            if to is not None and self._announced(on) == to:
                return
            exchange = None if taking is None else taking.on(on)
            removed, rest = ((), ()) if exchange is None else (exchange.removed, exchange.added)
            self._table.replace(
                on,
                removed,
                [({}, file) for file in (*rest, *files)],
                domains={self._domain: "" if to is None else to.as_json()},
                over_appends=True,  # nobody else has dead letters of this table
            )

        until_it_takes(attempt)
        self._table.run_hooks()

    def _rows(self, out: dict[LogId, tuple[OffsetRange, ...]], since: int, before: int) -> Rows:
        ranges = [(log_id, one) for log_id, several in out.items() for one in several]
        generation, offset = pc.field("generation"), pc.field("offset")
        mine = (pc.field("table") == self._name) & (generation >= since) & (generation < before)
        there = (
            (pc.field(LOG_ID.name) == str(log_id)) & (offset >= one.start) & (offset < one.end)
            for log_id, one in ranges
        )
        return Rows(
            places=tuple((log_id, Overlap(one, "offset")) for log_id, one in ranges),
            columns=("table", "generation", LOG_ID.name, "offset"),
            condition=mine & reduce(or_, there),
            holds_all=lambda file: False,
            owns=lambda file, on: False,
        )

    def _announced(self, on: Snapshot | None) -> TypedState | None:
        text = None if on is None else on.domain(self._domain)
        return TypedState.from_json(text) if text else None


def _out(way: Way) -> tuple[OffsetRange, ...]:
    """A step that was killed may have brought some that lie above where its table stands."""
    return way.out if way.back_to is None else joined([*way.out, OffsetRange(way.back_to, END)])
