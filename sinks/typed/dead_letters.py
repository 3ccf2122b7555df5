"""The dead letters of typed tables, in the table `unfit`: each once, and before the commit that moves past them.

There is no commit over two tables. So dead letters are committed first, with the positions that their step goes to in
the domain metadata ``logtwin.table.<name>`` of `unfit`. If these are ahead of the typed table, a step was killed in
between: the next one goes to the very same positions, and finds its dead letters there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sinks.delta.commits import retrying
from sinks.delta.data_file import DataFile, may_hold
from sinks.delta.delta_log import newest
from sinks.delta.files import open_parquet
from sinks.delta.kernel import KernelConflict, KernelTable, Overlap, Snapshot
from sinks.state.rewrite import Exchange, RowSelection, TakingOut
from sinks.storage.errors import reported_as
from sinks.tables import LOG_ID, UNFIT
from sinks.typed.state import TypedState
from sinks.warehouse import absolute, ensure_table
from sources.errors import ReplicaError
from sources.offsets import END, LogId, Offset, OffsetRange

_NEVER: Final = 1 << 31
_MESSAGE: Final = (LOG_ID.name, "offset", "batch_index")
_PLACE: Final = (LOG_ID.name, "offset", "column")
_NONE: Final = pa.schema([UNFIT.schema.field(name) for name in _PLACE]).remove_metadata().empty_table()


@dataclass(frozen=True, slots=True)
class UnfitCount:
    """How many `values` a typed table could not take, of how many `messages`, `without_row` of which made no row.

    A body that makes no row is one value.
    """

    values: int = 0
    messages: int = 0
    without_row: int = 0


def unfit_count(
    warehouse: str, name: str, generation: int, ranges: Mapping[LogId, Sequence[OffsetRange]] | None = None
) -> UnfitCount:
    """Count the dead letters of a typed table's `generation`, all or those in `ranges`. Raises ReplicaError."""
    if ranges is not None and not ranges:
        return UnfitCount()
    columns = (*_PLACE, "batch_index")
    letters = [one.select(columns) for one in _letters(warehouse, name, generation, columns)]
    if ranges:
        within = _within([(log_id, one) for log_id, several in ranges.items() for one in several])
        letters = [one.filter(within) for one in letters]
    if not letters:
        return UnfitCount()
    found = pa.concat_tables(letters)
    bodies = found.filter(pc.field("column").is_null())
    return UnfitCount(found.num_rows, *(len(one.group_by(_MESSAGE).aggregate([])) for one in (found, bodies)))


def unfit_offsets(warehouse: str, name: str, generation: int, *, of_no_row: bool) -> dict[LogId, list[Offset]]:
    """The offsets of messages with dead letters, in order, by log; with `of_no_row` only of those that made no row.

    Raises ReplicaError.
    """
    found_in = (one.select(_PLACE).cast(_NONE.schema) for one in _letters(warehouse, name, generation, _PLACE))
    letters = pa.concat_tables([_NONE, *found_in])
    rows = set(zip(*(letters[column].to_pylist() for column in _PLACE), strict=True))
    partly = {(log_id, offset) for log_id, offset, column in rows if column is not None} if of_no_row else set()
    found: dict[LogId, list[Offset]] = {}
    for log_id, offset in sorted({(log_id, offset) for log_id, offset, _ in rows} - partly):
        found.setdefault(LogId.parse(log_id), []).append(Offset(offset))
    return found


def _letters(warehouse: str, name: str, generation: int, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
    """The dead letters of one typed table, file by file: `columns`, with the two that say whose they are."""
    folder = UNFIT.path(absolute(warehouse))
    version = newest(folder)
    wanted = (pc.field("table") == name) & (pc.field("generation") == generation)
    with reported_as(f"the dead letters in {folder} cannot be read", hint="Restore the file from a copy."):
        for file in () if version is None else version.files.values():
            if may_hold(file.statistics(), "table", name):
                with open_parquet(folder, file.path) as opened:
                    yield opened.read(columns=["table", "generation", *columns]).filter(wanted)


def _within(ranges: Sequence[tuple[LogId, OffsetRange]]) -> pc.Expression:
    """Letters of messages in `ranges`, at least one."""
    log, offset = pc.field(LOG_ID.name), pc.field("offset")
    return reduce(or_, ((log == str(log_id)) & (offset >= one.start) & (offset < one.end) for log_id, one in ranges))


class DeadLetters:
    """The dead letters of one typed table. Driver only. Raises ReplicaError, KernelConflict."""

    def __init__(self, spark: SparkSession, warehouse: str, name: str, *, anew: bool = False) -> None:
        """With `anew`, those of a table that is being rebuilt beside the existing one."""
        self.path = UNFIT.path(absolute(warehouse))
        self._name = name
        self._table = KernelTable(spark, self.path)
        self._domain = f"logtwin.table.{name}{'.anew' if anew else ''}"
        self._was_there = False

    def ensure(self) -> None:
        """Create the table unless it is there. Raises ConfigurationError if it is not ours."""
        if not self._was_there:
            ensure_table(self._table, UNFIT)
            self._was_there = True

    def announced(self) -> TypedState | None:
        """The state that the last step that wrote here goes to; None if there was none."""
        return self._announced(self._table.snapshot())

    def bring(
        self,
        files: Sequence[DataFile],
        to: TypedState,
        out: Mapping[LogId, Sequence[OffsetRange]],
        announced: TypedState | None,
    ) -> None:
        """Commit the dead letters of the step that goes to `to`, once: remove those in `out`, add `files`.

        `announced` is what was announced when the step was planned. Raises KernelConflict if that has changed since,
        because another process is at another step.
        """
        if not files and not any(out.values()):
            return
        taking = self._taking(out)

        for attempt in retrying(self._refused):
            with attempt:
                on = self._table.existing()
                found = self._announced(on)
                if found == announced and found != to:
                    self._exchange(on, taking, files, to.as_json())
                    found = to
        if found != to:
            raise KernelConflict(f"another step of {self._name} has brought its dead letters")
        self._table.run_hooks()

    def clear(self, logs: Sequence[LogId], *, since: int = 0, before: int = _NEVER) -> None:
        """Remove the dead letters of `logs` in generations from `since` on and below `before`, and the announcement."""
        if self._table.snapshot() is None or not logs:
            return
        taking = self._taking(dict.fromkeys(logs, (OffsetRange(Offset(0), END),)), since, before)
        for attempt in retrying(self._refused):
            with attempt:
                self._exchange(self._table.existing(), taking, (), "")
        self._table.run_hooks()

    def _exchange(self, on: Snapshot, taking: TakingOut | None, files: Sequence[DataFile], announced: str) -> None:
        exchange = Exchange() if taking is None else taking.on(on)
        self._table.replace(
            on,
            exchange.removed,
            [({}, file) for file in (*exchange.added, *files)],
            domains={self._domain: announced},
            over_appends=True,  # nobody else has dead letters of this table
        )

    def _taking(
        self, out: Mapping[LogId, Sequence[OffsetRange]], since: int = 0, before: int = _NEVER
    ) -> TakingOut | None:
        ranges = [(log_id, one) for log_id, several in out.items() for one in several]
        return TakingOut(self._table, UNFIT, self._rows(ranges, since, before)) if ranges else None

    def _rows(self, ranges: Sequence[tuple[LogId, OffsetRange]], since: int, before: int) -> RowSelection:
        generation = pc.field("generation")
        mine = (pc.field("table") == self._name) & (generation >= since) & (generation < before)
        return RowSelection(
            places=tuple((log_id, Overlap(one, "offset")) for log_id, one in ranges),
            columns=("table", "generation", LOG_ID.name, "offset"),
            condition=mine & _within(ranges),
            holds_all=lambda file: False,
            owns=lambda file, on: False,
        )

    def _refused(self, found: str) -> ReplicaError:
        return ReplicaError(
            f"what did not fit into the typed table {self._name} cannot be written",
            expected=f"to commit to {self._table.path}",
            found=found,
            hint="Others commit to it all the time; the next step does it again.",
        )

    def _announced(self, on: Snapshot | None) -> TypedState | None:
        text = None if on is None else on.domain(self._domain)
        return TypedState.from_json(text) if text else None
