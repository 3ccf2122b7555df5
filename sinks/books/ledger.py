"""The ledger: one row for each range that a commit to the log table contains. Driver only, without a Spark job.

The rows follow that commit (`sinks/books/follow_up_table.py`); the transaction version is the end of the newest range
in the ledger. `Ledger` writes them, for all logs. `LedgerRows` is the ledger of one log: its rows are read by offset,
taken out, or marked as deleted. To read all rows, `sinks/proof/whole_ledger.py` is quicker and needs no session, but
has only the columns in `sinks.proof.completeness.COLUMNS`.

Upkeep joins rows, but none across a kept **bound**. Retention and repair choose bounds of rows, take records out of the
table log, and change the ledger afterwards. If rows were joined in between, a row would claim records that are gone. So
they first commit their bounds to the ledger, in one domain. A join writes that domain, too: Kernel refuses the second
of two commits that were built on the same version, so a join either came before, which is seen then, or heeds the
bound. A bound stays after its repair, and costs a row there. Those that retention has passed are removed by the next
join.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from pyspark.sql import SparkSession

from sinks.books.follow_up_table import FollowingTable
from sinks.delta.actions import Partition
from sinks.delta.commits import retrying
from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile
from sinks.delta.files import FileWriter, new_name
from sinks.delta.kernel import KernelTable, Overlap
from sinks.state.rewrite import RowSelection, TakingOut, rows_of
from sinks.tables import LEDGER, LOG_ID, in_numbers
from sinks.values.ledger_row import BACKFILL, JOINED, LedgerEntry, LedgerRow
from sinks.warehouse import absolute
from sources.errors import ReplicaError
from sources.offsets import LogId, Offset, OffsetRange, Position
from sources.records import TIMESTAMP

_WENT_BACK = "An entry of its Delta log was lost, or an older copy was restored."
_SCHEMA = LEDGER.schema.remove_metadata()
_IN_NUMBERS = in_numbers(_SCHEMA)
_IS_THERE = pc.field("deleted_at").is_null()
BOUNDS_DOMAIN: Final = "logtwin/ledger/bounds"
Bounds = Mapping[str, frozenset[Offset]]
"""The bounds to keep, by the id of the log."""


def app_id(position: Position) -> str:
    """The Delta application whose transaction version is the end of the newest range of the log in the ledger."""
    return f"logtwin/ledger/{position.log_id}@{position.epoch}"


def fill_app_id(log_id: LogId) -> str:
    """The Delta application whose transaction version is the number of the newest fill of the log in the ledger."""
    return f"logtwin/ledger/{log_id}@{BACKFILL}"


class Ledger:
    """The ledger table. Driver only."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._table = FollowingTable(spark, LEDGER, path)

    def check_below(self, positions: Iterable[Position]) -> None:
        """Raise ReplicaError if the ledger is above one of `positions`: then the table log went back."""
        wanted = {app_id(position): position for position in positions}
        for app, found in self._table.versions(wanted).items():
            position = wanted[app]
            if found > position.offset:
                raise ReplicaError(
                    "the table log has lost its newest commits, which its ledger knows",
                    log=position.log_id,
                    offset=position.offset,
                    expected=f"the position {found}, as in the ledger",
                    found=position.offset,
                    hint=f"{_WENT_BACK} Restore what is missing, or go on from here: logtwin repair.",
                )

    def append_each(self, owed: Mapping[Position, Sequence[LedgerRow]]) -> set[Position]:
        """Add the rows of the commit that led to each position, unless they are there. Returns the positions added."""
        positions = {app_id(position): position for position, rows in owed.items() if rows}

        def write(wanted: Collection[str]) -> Sequence[DataFile]:
            rows = [
                entry
                for app, position in positions.items()
                if app in wanted
                for entry in _of(position.log_id, position.epoch, owed[position])
            ]
            return [self._write(rows)]

        versions = {app: position.offset for app, position in positions.items()}
        return {positions[app] for app in self._table.append_each(versions, write)}

    def append_topic(self, topic: LogId, commits: int, rows: Sequence[LedgerEntry]) -> bool:
        """Add the rows of `topic`'s commit number `commits`, unless they are there. For an older version's table."""
        return self._append(f"logtwin/ledger/{topic}", commits, rows)

    def append_fill(self, position: Position, fills: int, rows: Sequence[LedgerRow]) -> bool:
        """Add the rows of fill number `fills`, unless they are there; `position` is any one in the log's epoch."""
        return self._append(fill_app_id(position.log_id), fills, _of(position.log_id, position.epoch, rows))

    def _append(self, app: str, version: int, rows: Sequence[LedgerEntry]) -> bool:
        return bool(rows) and self._table.append(app, version, lambda: [self._write(rows)])

    def run_hooks(self, *, checkpoint_aside: bool = False) -> None:
        self._table.run_hooks(checkpoint_aside=checkpoint_aside)

    def _write(self, rows: Sequence[LedgerEntry]) -> DataFile:
        values = [{"log_id": str(one.log_id), "epoch": one.epoch, **one.row.as_dict()} for one in rows]
        return self._table.written(values, rows[0].row.start)


def _of(log_id: LogId, epoch: int, rows: Sequence[LedgerRow]) -> list[LedgerEntry]:
    return [LedgerEntry(log_id, epoch, row) for row in rows]


class LedgerRows:
    """The rows of one log in the table ledger."""

    def __init__(self, spark: SparkSession, warehouse: str, log_id: LogId) -> None:
        self._table = KernelTable(spark, LEDGER.path(absolute(warehouse)))
        self._log_id = log_id

    def overlapping(self, wanted: OffsetRange) -> list[LedgerRow]:
        """The ranges that have offsets in `wanted` and whose records are in the table log, in order.

        Raises ReplicaError.
        """
        found = self._read(wanted, _IS_THERE, _SCHEMA.names)
        return sorted(map(LedgerRow.from_dict, found.to_pylist()), key=lambda row: row.range)

    def within(self, wanted: OffsetRange, columns: Sequence[str]) -> pa.Table:
        """Some `columns` of the ranges that lie in `wanted` and whose records are in the table log, in order.

        Times are microseconds since 1970, UTC. Raises ReplicaError.
        """
        return self._read(wanted, _IS_THERE & _lies_in(wanted), columns).sort_by("start")

    def set_deleted(self, out: Callable[[], Sequence[OffsetRange]], at: datetime) -> int:
        """Set `deleted_at` of the ranges that lie in one of `out` and have none; returns of how many.

        `out` is asked after the ledger was looked at: a row that was seen is of records that are gone by then, and one
        that a fill brings later is not touched. Raises ReplicaError.
        """

        def refused(found: str) -> ReplicaError:
            return ReplicaError(
                "deletions by retention cannot be recorded in the ledger",
                log=self._log_id,
                found=found,
                hint="The records are out of the table log. Run logtwin maintain again: it goes on where it stopped.",
            )

        return retrying(refused)(self._set_deleted, out, at)

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
        return retrying(self._refused)(self._exchange, lambda: (holes(), _IS_THERE))

    def keep_bounds(self, *bounds: Offset) -> bool:
        """Let no row be joined across `bounds` from now on. Returns whether no joined row reaches over one.

        Called before records are taken out by the bounds of rows (`sinks/books/ledger.py`). Raises ReplicaError.
        """
        retrying(self._refused)(self._keep_bounds, bounds)
        at = ((one, self.overlapping(OffsetRange(Offset(one - 1), Offset(one + 1)))) for one in bounds if one)
        return not any(row.origin == JOINED and row.start < one < row.end for one, rows in at for row in rows)

    def _keep_bounds(self, bounds: Sequence[Offset]) -> None:
        snapshot = self._table.existing(self._log_id, to_commit=True)
        before = bounds_in(snapshot.domain(BOUNDS_DOMAIN))
        after = with_kept(before, self._log_id, bounds)
        if after != before:
            self._table.commit(snapshot, domains={BOUNDS_DOMAIN: text_of(after)})

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

    def _read(self, wanted: OffsetRange, condition: pc.Expression, columns: Sequence[str]) -> pa.Table:
        """Read the rows that have offsets in `wanted` and meet `condition`, which takes only those that are there."""
        rows = self._rows((wanted,), condition)
        needed = tuple(dict.fromkeys((*columns, *rows.columns)))
        files = [] if wanted.is_empty else rows.files(self._table, self._table.existing(self._log_id))
        there = filter(_has_some_there, files)
        batches = (batch.filter(rows.condition) for file in there for batch in self._rows_of(file, needed))
        found = pa.Table.from_batches(batches, pa.schema([_SCHEMA.field(name) for name in needed]))
        return found.select(columns).cast(pa.schema([_IN_NUMBERS.field(name) for name in columns]))

    def _set_deleted(self, out: Callable[[], Sequence[OffsetRange]], at: datetime) -> int:
        snapshot = self._table.existing(self._log_id)
        wanted = out()
        rows = self._rows(wanted, _IS_THERE & _any(map(_lies_in, wanted)))
        owing = [
            (file, count)
            for file in filter(_has_some_there, rows.files(self._table, snapshot))
            if (count := sum(batch.filter(rows.condition).num_rows for batch in self._rows_of(file, rows.columns)))
        ]
        if owing:
            removed = [file for file, _ in owing]
            added: list[tuple[Partition, DataFile]] = [({}, self._deleted(file, rows, at)) for file in removed]
            self._table.replace(snapshot, removed, added, domains={}, over_appends=True)
            self._table.run_hooks()
        return sum(count for _, count in owing)

    def _deleted(self, file: StoredFile, rows: RowSelection, at: datetime) -> DataFile:
        """Write the file anew, with `deleted_at` set in those of its rows that are among `rows`."""
        column = _SCHEMA.get_field_index("deleted_at")
        with FileWriter(LEDGER, self._table.path, new_name(rows.start)) as writer:
            for batch in self._rows_of(file, _SCHEMA.names):
                goes = pads.dataset([batch]).to_table(columns={"goes": rows.condition})["goes"].combine_chunks()
                times = pc.if_else(goes, pa.scalar(at, TIMESTAMP), batch.column(column))
                writer.write(batch.set_column(column, batch.schema.field(column), times))
            return writer.finish()

    def _rows_of(self, file: StoredFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return rows_of(self._table.path, LEDGER, file, self._log_id, columns)

    def _rows(self, wanted: Sequence[OffsetRange], condition: pc.Expression) -> RowSelection:
        overlaps = _any((pc.field("start") < one.end) & (pc.field("end") > one.start) for one in wanted)
        return RowSelection(
            places=tuple((self._log_id, Overlap(one, "start", "end")) for one in wanted),
            columns=(LOG_ID.name, "epoch", "start", "end", "deleted_at"),
            condition=(pc.field(LOG_ID.name) == str(self._log_id)) & overlaps & condition,
            holds_all=lambda file: False,
            owns=lambda file, on: False,
        )


def _any(each: Iterable[pc.Expression]) -> pc.Expression:
    return reduce(or_, each, pc.scalar(False))


def _lies_in(wanted: OffsetRange) -> pc.Expression:
    return (pc.field("start") >= wanted.start) & (pc.field("end") <= wanted.end)


def _has_some_there(file: StoredFile) -> bool:
    """Whether the file may have a row without `deleted_at`, by its statistics."""
    return bool(file.statistics().get("nullCount", {}).get("deleted_at") != 0)


def bounds_in(text: str | None) -> Bounds:
    """Parse the bounds in the domain's `text`, None before the first. Raises ValueError if no version wrote it."""
    said = {} if text is None else json.loads(text)
    if not isinstance(said, dict) or not all(isinstance(one, list) for one in said.values()):
        raise ValueError(f"the domain {BOUNDS_DOMAIN} is no map of lists: {text}")
    return {name: frozenset(map(Offset, offsets)) for name, offsets in said.items()}


def text_of(bounds: Bounds) -> str:
    """The inverse of `bounds_in`."""
    return json.dumps({name: sorted(offsets) for name, offsets in sorted(bounds.items()) if offsets})


def with_kept(bounds: Bounds, log_id: LogId, kept: Iterable[Offset]) -> Bounds:
    return {**bounds, str(log_id): bounds.get(str(log_id), frozenset()) | frozenset(kept)}


def above(bounds: Bounds, fronts: Mapping[str, Offset]) -> Bounds:
    """Leave out bounds that no row can reach over: a log has no rows before its front."""
    return {
        name: frozenset(one for one in offsets if one > fronts.get(name, Offset(0))) for name, offsets in bounds.items()
    }
