"""Join rows of the ledger: rows of many batches become one for an hour or 64 MB (`sinks/upkeep/ledger_plan.py`).

    rows that may be joined ─▶ tasks read their bytes out of the log table ─▶ one commit exchanges them in the ledger
                               (`sinks/upkeep/ledger_task.py`)                (`sinks/upkeep/ledger_exchange.py`)

Only rows of the stream are joined, and not across what others need: a hole, a range that an incident tells of, a bound
that a retention or a repair has chosen (`sinks/books/ledger.py`), another epoch. Rows of a backfill, of a repair
and of deleted records stay as they are, because others ask which of them came when.

The ledger covers the same ranges before and after, so nobody who reads it together with the log table has to know. The
commit is refused if anybody has removed one of the rows since they were read, or has chosen a bound; then they stay
until the next run. A kill leaves files that no commit names, and rows that the next run joins.

The work is done in pieces of 1 GiB of the log, one Spark job and one commit each; beside the batches of a job in pieces
of one task. The ledger is read in parts, so that memory does not grow with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from itertools import groupby
from operator import or_
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sinks.books.incidents import incidents_of, logs_with_incidents
from sinks.books.ledger import BOUNDS_DOMAIN, Bounds, above, bounds_in, text_of
from sinks.delta.actions import Partition
from sinks.delta.data_file import DataFile, may_hold
from sinks.delta.data_file import bounds as bounds_of
from sinks.delta.delta_log import StoredFile, newest
from sinks.delta.files import dataset_of
from sinks.delta.kernel import KernelConflict, KernelTable, Snapshot
from sinks.delta.spark_jobs import JobFacts, run_each
from sinks.proof.stored import parts
from sinks.proof.verdicts import Compared
from sinks.state.fence import holes_in, state_in
from sinks.storage.errors import reported_as
from sinks.tables import LEDGER, LEDGER_SCHEMA, LOG_ID, in_numbers, log_table
from sinks.upkeep.ledger_exchange import JoinedRows, Key
from sinks.upkeep.ledger_plan import PLANNED_BY, groups
from sinks.upkeep.ledger_task import Groups, LedgerJoiner, Proven, Rows
from sinks.values.incident import State
from sinks.values.ledger_row import JOINED, STREAM, LedgerRow
from sinks.warehouse import absolute
from sources.loss import WayPast
from sources.master import MasterLog
from sources.offsets import END, LogId, Offset, OffsetRange
from sources.records import TIMESTAMP

_PIECE_BYTES: Final = 1 << 30
_PIECE_ROWS: Final = 100_000
_TASK_BYTES: Final = 128_000_000
_WINDOW_ROWS: Final = 250_000
_IN_NUMBERS = in_numbers(LEDGER_SCHEMA.remove_metadata())
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Doubtful:
    """A row that was left, because the table does not give its bytes. `epoch` and `position` are its log's."""

    log_id: LogId
    epoch: int
    position: Offset
    found: Compared


@dataclass(slots=True)
class Joined:
    """How many rows were, or would be, joined into how many, the bytes of the log in them, and what is damaged."""

    rows: int = 0
    into: int = 0
    bytes: int = 0
    doubtful: list[Doubtful] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Log:
    """One log: rows that have offsets in a `barred` range are left as they are. It has none before `front`."""

    master: MasterLog
    epoch: int
    position: Offset
    front: Offset
    barred: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Rows of one log and epoch, in `span`, that become one."""

    log_id: str
    epoch: int
    span: OffsetRange
    rows: int
    bytes: int


_Place = tuple[str, str]
"""The place of a file of the ledger: the least time of a commit in it, and its path."""


class LedgerJoin:
    """Joins rows that were committed in hours that ended by `before`, of `masters`' logs, all of one table of records.

    The masters are not asked: their code makes bytes of rows. With a `pace` a piece is one Spark task, and it is called
    before each. Driver only.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: str,
        masters: Sequence[MasterLog],
        before: datetime,
        *,
        pace: Callable[[], None] | None = None,
    ) -> None:
        self._spark = spark
        self._warehouse = absolute(warehouse)
        self._masters = {str(one.log_id): one for one in masters}
        self._before = before.replace(minute=0, second=0, microsecond=0)  # an hour is joined once, when it is over
        self._ledger = KernelTable(spark, LEDGER.path(self._warehouse))
        self._records = KernelTable(spark, log_table(masters[0].log_id).path(self._warehouse))
        self._tried: set[_Chosen] = set()
        self._pace = pace or (lambda: None)
        self._piece_bytes = _PIECE_BYTES if pace is None else _TASK_BYTES
        # a core stays free for the batches of a job
        self._tasks = 1 if pace is not None else max(1, spark.sparkContext.defaultParallelism - 1)

    def plan(self) -> Joined:
        """Say what `run` would do if all rows are whole. Raises ReplicaError."""
        logs, bounds = self._logs(self._records.existing()), _bounds(self._ledger.existing())
        chosen = [one for window in self._windows(None) for one in self._groups(window, logs, bounds)]
        return Joined(sum(one.rows for one in chosen), len(chosen), sum(one.bytes for one in chosen))

    def run(self) -> Joined:
        """Join what can be. Raises ReplicaError, and what the pace raises; what was committed stays."""
        done, since = Joined(), None
        while True:
            self._pace()
            on = self._ledger.existing()  # before its files are listed: what is removed after that is a conflict
            window = next(self._windows(since), None)
            if window is None:
                self._ledger.run_hooks()
                return done
            if not self._join_some(on, window, done):
                since = _place(window[-1])

    def _windows(self, since: _Place | None) -> Iterator[list[StoredFile]]:
        """The files behind `since` that may hold such rows, by their times, as many as are read at once."""
        version = newest(self._ledger.path)
        files = sorted(() if version is None else version.files.values(), key=_place)
        window: list[StoredFile] = []
        rows = 0
        for file in files:
            if (since is not None and _place(file) <= since) or not self._may_hold(file):
                continue
            count = file.statistics().get("numRecords", 0)
            if window and rows + count > _WINDOW_ROWS:
                yield window
                window, rows = [], 0
            window.append(file)
            rows += count
        if window:
            yield window

    def _may_hold(self, file: StoredFile) -> bool:
        said = file.statistics()
        first = bounds_of(said, "committed_at")[0]
        is_old = first is None or datetime.fromisoformat(first) < self._before
        return is_old and any(may_hold(said, LOG_ID.name, log_id) for log_id in self._masters)

    def _logs(self, on: Snapshot) -> dict[str, _Log]:
        """The logs that have data and are not in repair, as version `on` of their table has them."""
        domains, told = on.domains(), set(logs_with_incidents(self._warehouse))
        incidents = incidents_of(self._warehouse, told & {one.log_id for one in self._masters.values()})
        found: dict[str, _Log] = {}
        for name, master in self._masters.items():
            state = state_in(domains.get, master.log_id)
            if state is None or state.offset is None or state.repair is not None:
                continue
            holes = holes_in(domains.get, master.log_id, state)
            doubted = (
                row.found.range
                for row in incidents.get(master.log_id, ())
                if row.state is not State.HEALED and row.found.condition.way is not WayPast.ACCEPT
            )
            barred = (*holes.ranges, *doubted, OffsetRange(state.offset, END))
            found[name] = _Log(master, state.epoch, state.offset, holes.front, barred)
        return found

    def _join_some(self, on: Snapshot, window: Sequence[StoredFile], done: Joined) -> bool:
        """Join some rows of `window`. Returns whether there were any that had not been tried."""
        records = self._records.existing()
        logs, bounds = self._logs(records), _bounds(on)
        untried = (one for one in self._groups(window, logs, bounds) if one not in self._tried)
        chosen = _piece(untried, self._piece_bytes)
        if not chosen:
            return False
        self._tried |= set(chosen)
        given = list(self._given(records, window, logs, chosen))
        facts = JobFacts(
            problem="the Spark job that reads ranges of the ledger back failed",
            log=given[0].log.log_id,
            hint="Nothing was changed; run it again.",
        )
        made = run_each(self._spark, LedgerJoiner(self._records.path), given, facts, tasks=self._tasks)
        if not self._are_there(window):  # a repair may have come between the reading of the two tables
            _log.info("%s: it was changed meanwhile; the next run goes on", self._ledger.path)
            return True
        for work, found in zip(given, made, strict=True):
            done.doubtful += [one for one in _doubtful(logs[str(work.log.log_id)], found) if one not in done.doubtful]
        joined = [row for found in made for group in found for row in group.joined]
        fronts = {name: log.front for name, log in logs.items()}
        going = _going(given, made)
        if joined and self._commit(on, window, going, text_of(above(bounds, fronts))):
            done.rows += len(going.going)
            done.into += len(joined)
            done.bytes += sum(row.bytes for row in joined)
        return True

    def _are_there(self, window: Sequence[StoredFile]) -> bool:
        """Whether nobody has taken out a row that was read."""
        version = newest(self._ledger.path)
        return version is not None and all(file.path in version.files for file in window)

    def _commit(self, on: Snapshot, window: Sequence[StoredFile], going: JoinedRows, bounds: str) -> bool:
        exchange = going.exchange(self._ledger.path, window)
        if exchange is None:
            _log.warning("%s: it has rows twice, which stay as they are; see logtwin coverage", self._ledger.path)
            return False
        added: list[tuple[Partition, DataFile]] = [({}, file) for file in exchange.added]
        domains = {BOUNDS_DOMAIN: bounds}
        try:
            self._ledger.replace(on, exchange.removed, added, domains=domains, over_appends=True)
        except KernelConflict as conflict:
            # The written files stay: a refused writer cannot always tell whether the commit was made.
            _log.info("%s: %d rows left as they are: %s", self._ledger.path, exchange.rows, conflict)
            return False
        return True

    def _groups(self, window: Sequence[StoredFile], logs: dict[str, _Log], bounds: Bounds) -> Iterator[_Chosen]:
        """The rows in the files of `window` that become one, log by log."""
        rows = self._read(window, [LOG_ID.name, *PLANNED_BY], self._may_join(logs))
        for name in sorted(pc.unique(rows[LOG_ID.name]).to_pylist()):
            ours = rows.filter(pc.equal(rows[LOG_ID.name], name)).sort_by(
                [("start", "ascending"), ("end", "ascending")]
            )
            for places in groups(ours, logs[name].barred, bounds.get(name, ())):
                epochs, starts, ends, sizes = (ours[one][places].to_pylist() for one in PLANNED_BY[:4])
                span = OffsetRange(Offset(starts[0]), Offset(ends[-1]))
                yield _Chosen(name, epochs[0], span, len(sizes), sum(sizes))

    def _may_join(self, logs: dict[str, _Log]) -> pc.Expression:
        origin = pc.field("origin").isin([STREAM, JOINED])
        is_old = pc.field("committed_at") < pa.scalar(self._before, TIMESTAMP)
        return pc.field(LOG_ID.name).isin(list(logs)) & origin & is_old & pc.field("deleted_at").is_null()

    def _given(
        self, records: Snapshot, window: Sequence[StoredFile], logs: dict[str, _Log], chosen: Sequence[_Chosen]
    ) -> Iterator[Groups]:
        """The work of tasks: what is `chosen`, with the rows themselves and the files that have their records."""
        condition = self._may_join(logs) & reduce(or_, map(_lies_in, _spans(chosen)))
        rows = self._read(window, _IN_NUMBERS.names, condition)
        for name, of_log in groupby(chosen, key=lambda one: one.log_id):
            several = list(of_log)
            master, whole = logs[name].master, OffsetRange(several[0].span.start, several[-1].span.end)
            ours = rows.filter(pc.equal(rows[LOG_ID.name], name)).sort_by("start")
            files = parts(self._records, records, master.log_id, whole)
            for together in _cut(several):
                wanted = OffsetRange(together[0].span.start, together[-1].span.end)
                near = [part for part in files if part.range.overlaps(wanted)]
                yield Groups(master, together[0].epoch, [_rows_in(ours, one) for one in together], near)

    def _read(self, window: Sequence[StoredFile], columns: Sequence[str], condition: pc.Expression) -> pa.Table:
        """Read rows in the files of `window`. Times are microseconds since 1970."""
        with reported_as(
            f"the table {self._ledger.path} cannot be read",
            hint="Check that the table's storage can be reached; a file that is gone has to be restored.",
        ):
            dataset = dataset_of(self._ledger.path, [file.path for file in window], LEDGER_SCHEMA)
            found = dataset.to_table(columns=list(columns), filter=condition)
        return found.cast(pa.schema([_IN_NUMBERS.field(name) for name in columns]))


def _place(file: StoredFile) -> _Place:
    return bounds_of(file.statistics(), "committed_at")[0] or "", file.path


def _bounds(on: Snapshot) -> Bounds:
    return bounds_in(on.domain(BOUNDS_DOMAIN))


def _piece(groups: Iterator[_Chosen], most_bytes: int) -> list[_Chosen]:
    """Take as many groups as are read and committed together; at least one, if there is any."""
    found: list[_Chosen] = []
    rows = size_bytes = 0
    for one in groups:
        rows, size_bytes = rows + one.rows, size_bytes + one.bytes
        if found and (rows > _PIECE_ROWS or size_bytes > most_bytes):
            break
        found.append(one)
    return found


def _cut(chosen: Sequence[_Chosen]) -> Iterator[list[_Chosen]]:
    """The groups of one log for each task: those of one epoch, up to _TASK_BYTES."""
    together: list[_Chosen] = []
    for one in chosen:
        is_other = bool(together) and one.epoch != together[0].epoch
        if is_other or sum(each.bytes for each in together) + one.bytes > _TASK_BYTES:
            yield from [together] if together else []
            together = []
        together.append(one)
    yield together


def _spans(chosen: Sequence[_Chosen]) -> Iterator[tuple[str, OffsetRange]]:
    """Yield each log and the range that its groups lie in."""
    for name, of_log in groupby(chosen, key=lambda one: one.log_id):
        several = list(of_log)
        yield name, OffsetRange(several[0].span.start, several[-1].span.end)


def _lies_in(place: tuple[str, OffsetRange]) -> pc.Expression:
    name, span = place
    return (pc.field(LOG_ID.name) == name) & (pc.field("start") >= span.start) & (pc.field("end") <= span.end)


def _rows_in(rows: pa.Table, one: _Chosen) -> Rows:
    first, stop = np.searchsorted(rows["start"].to_numpy(), [one.span.start, one.span.end])
    return [LedgerRow.from_dict(values) for values in rows.slice(first, stop - first).to_pylist()]


def _doubtful(log: _Log, found: Sequence[Proven]) -> Iterator[Doubtful]:
    for group in found:
        yield from (Doubtful(log.master.log_id, log.epoch, log.position, one) for one in group.doubtful)


def _going(given: Sequence[Groups], made: Sequence[Sequence[Proven]]) -> JoinedRows:
    """List every row that goes. The first of those that become one is given that one."""
    going: dict[Key, LedgerRow | None] = {}
    for work, found in zip(given, made, strict=True):
        for rows, group in zip(work.groups, found, strict=True):
            for joined in group.joined:
                for row in (one for one in rows if joined.range.holds(one.range)):
                    key = str(work.log.log_id), work.epoch, int(row.start)
                    going[key] = joined if row.start == joined.start else None
    return JoinedRows(going)
