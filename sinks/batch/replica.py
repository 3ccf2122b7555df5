"""The replica of one log: how it is opened, what it has, and what a batch brings it (`sinks/batch/group.py`).

After a crash at any point a new Replica goes on at the table's position, and there is exactly one copy of everything.
Replicas of a run's logs are opened many in one commit, in which those that are fresh begin (`Opening`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from pyspark.sql import SparkSession

from sinks.batch.master_proof import prove_master
from sinks.batch.proof import SplitReport, prove_batch
from sinks.batch.receiver import LogWriter
from sinks.batch.tasks import discard_files
from sinks.books.bookkeeping import Bookkeeping
from sinks.books.incidents import IncidentsTable
from sinks.books.ledger import LedgerRows
from sinks.delta.commits import GroupCommit, doubled_s
from sinks.delta.kernel import KernelTable
from sinks.history.key_values import KeyedStateFollower
from sinks.state.fence import refuse_repair, this_writer
from sinks.state.log_state import LogState, Writer
from sinks.state.positions import Beginning, Claimed, Move, Positions
from sinks.tables import log_table
from sinks.values.incident import Incident
from sinks.values.ledger_row import LedgerRow
from sinks.warehouse import absolute, ensure_tables
from sources.epochs import seen
from sources.errors import MasterError, MasterSilent, ReplicaError, naming
from sources.master import Committed, MasterLog, Session
from sources.offsets import LogId, Offset, OffsetRange

FIRST_PATIENCE_S = 2.0
MOST_PATIENCE_S = 30.0
"""How long a log that is read alone waits for a record: at first, and at most. It doubles each time that none came."""

MOST_IN_GROUP_S = 8.0
"""The longest wait of a log that cannot be read alone and holds up its group: from the group's own patience up."""
_log = logging.getLogger(__name__)


class Replica:
    """One log's replica, owned by one run. Driver only; one thread at a time unless said otherwise."""

    def __init__(
        self,
        spark: SparkSession,
        warehouse: str,
        master: MasterLog,
        session: Session,
        writer: Writer | None = None,
    ) -> None:
        self.log_id = master.log_id
        self.spark = spark
        self.warehouse = absolute(warehouse)
        self.master = master
        self.session = session  # another one from when the replica went back
        self.writer = writer or this_writer()
        self._keyed_state = KeyedStateFollower(spark, self.warehouse, master)
        self._state: LogState | None = None
        self._received: Offset | None = None
        self._fruitless = 0  # attempts in a row that its master sent nothing for

    @cached_property
    def positions(self) -> Positions:
        """Its table, for opening it. Made on first use: a group has its own, for all its logs."""
        return Positions(KernelTable(self.spark, log_table(self.log_id).path(self.warehouse)))

    def prove_master(self) -> None:
        """See `sinks.batch.master_proof`. It connects, in the turn of a reader or of the session. From any thread."""
        state = self.opened()
        if state.offset:
            master = self.session.reader_of(self.master.continuing(state.known))
            prove_master(master, state.offset, state.link, lambda: self._ranges(state))

    def report(self, incident: Incident) -> None:
        """Record an incident that is not passed. Raises ReplicaError."""
        IncidentsTable(self.spark, self.warehouse, self.log_id).record(self.opened().epoch, [incident])

    def position(self) -> Offset | None:
        """The position that this run has committed, or found when it opened."""
        return self.opened().offset

    @property
    def is_open(self) -> bool:
        return self._state is not None

    @property
    def state(self) -> LogState | None:
        """The state that this run has committed, or found when it opened; None before that. From any thread."""
        return self._state

    def received(self) -> Offset | None:
        """The offset up to which tasks have read, proven; if asked after `position`, never below that."""
        self.opened()
        return self._received

    def log_writer(self, patience_s: float | None = None) -> LogWriter:
        """Return what a task needs to read and write a part of this log.

        Its master has `patience_s`, or longer if it was silent that long and the log is not read alone (`Group.bring`):
        it would never get on.
        """
        mine = self.opened()
        if patience_s is not None and self.master.traits.gains_logs:
            patience_s = doubled_s(patience_s, self._fruitless, max(patience_s, MOST_IN_GROUP_S))
        master = self.session.reader_of(self.master.continuing(mine.known))
        return LogWriter(master, mine.epoch, mine.offset, mine.link, self.warehouse, patience_s)

    @property
    def is_too_slow(self) -> bool:
        """Whether nothing came in the time that a group had for it: a record may take longer than that."""
        return self._fruitless > 0

    @property
    def patience_alone_s(self) -> float:
        """How long its master has if it is read by itself: longer each time that nothing comes."""
        return doubled_s(FIRST_PATIENCE_S, self._fruitless - 1, MOST_PATIENCE_S)

    def move(self, reports: Sequence[SplitReport], *, is_alone: bool = False) -> Move | None:
        """Prove the tasks' reports, and return what to commit for this log: files, position, and what is owed to other
        tables. None if nothing of it is new. Raises a task's error, Gap, CoverageError.

        Success alone (`is_alone`) does not reset the patience for its master; success in a group does.
        """
        kind = MasterSilent if self.master.traits.gains_logs else MasterError
        errors = [one.error for one in reports if isinstance(one.error, kind) and one.error.is_transient]
        if errors:
            self._fruitless += 1
        elif not is_alone:
            self._fruitless = 0
        mine, now_us = self.opened(), time.time_ns() // 1000
        with naming(self.log_id):
            proven = prove_batch(reports, mine.offset)
        if proven is None:
            return None
        discard_files(self.warehouse, proven.late)
        self._received = proven.range.end
        to = mine.moved_to(
            proven.range.end,
            first=proven.range.start,
            ledger=proven.ledger(now_us),
            link=proven.link,
            mark=proven.mark,
            epochs=seen(mine.epochs, proven.epochs, now_us),
            incidents=proven.incidents(now_us),
            quarantined=proven.quarantined,
        )
        return Move(self.log_id, mine, to, proven.files, proven.lost)

    def moved(self, move: Move) -> None:
        """Note that `move` was committed."""
        self._state = move.to
        self._received = move.to.offset

    @property
    def committed(self) -> Committed | None:
        """The position that its master may be promised; None before anything is committed."""
        mine = self.opened()
        return None if mine.offset is None else Committed(mine.offset, mine.mark)

    def follow(self) -> None:
        """Bring the map that the log makes to its position. Raises ReplicaError."""
        self._keyed_state.follow()

    def take(self, states: Mapping[LogId, LogState]) -> None:
        """Open the replica with its state in `states`, those at one version of the table."""
        self._state = states[self.log_id]
        self._received = self._state.offset

    def _ranges(self, state: LogState) -> list[LedgerRow]:
        """The ranges of the log in the table, in order, with those that the newest commit still owes to the ledger."""
        ledger = LedgerRows(self.spark, self.warehouse, self.log_id)
        known = ledger.overlapping(OffsetRange(Offset(0), state.offset or Offset(0)))
        owed = [row for row in state.ledger if not any(one.range.overlaps(row.range) for one in known)]
        return [*known, *owed]

    def opened(self) -> LogState:
        """Return `state` once the replica is open. Raises ReplicaError before that."""
        if self._state is None:
            raise ReplicaError("the replica is not open", log=self.log_id, hint="Open it first (open_together).")
        return self._state


def open_together(replicas: Sequence[Replica], beginnings: Sequence[Beginning] = ()) -> Sequence[LogId]:
    """Make the tables, take the logs, restore what their newest commits owe: in one commit for all of `replicas`, which
    have one table, one writer and are all fresh or all opened before. Fresh logs begin with it, as `beginnings` say;
    those that their masters have gained since are returned.

    Their maps follow later (`Replica.follow`), because that can take long. Replicas that were open before resume at
    their positions, and never reclaim a log from a newer run. Raises ConfigurationError (a table that is not ours),
    ReplicaError, TakenOver; RepairPending, and leaves the logs to the repair then. Nothing is opened if it raises.
    """
    first = replicas[0]
    ensure_tables(first.spark, first.warehouse, log_table(first.log_id))
    positions, books = first.positions, Bookkeeping(first.spark, first.warehouse)
    logs = [one.log_id for one in replicas]
    on = positions.newest()
    found = positions.found(on, logs)
    _refuse_repairs(found)
    if first.is_open:
        claim = Claimed(positions.held_by(on, logs, first.writer))
    else:
        if beginnings:
            _refuse_what_has_begun(positions, books, found, first.writer)
        claim = positions.claim(on, logs, first.writer, beginnings)
    _refuse_repairs(claim.states)
    books.check(claim.states)
    restored = books.settle(claim.states)
    for one in replicas:
        one.take(claim.states)
    if restored:
        _log.info("%s: restored what the newest commit owes to other tables", ", ".join(map(str, restored)))
    positions.run_hooks(checkpoint_aside=True)
    books.run_hooks(checkpoint_aside=True)
    return claim.gained


def _refuse_what_has_begun(
    positions: Positions, books: Bookkeeping, found: Mapping[LogId, LogState | None], writer: Writer
) -> None:
    """Raise ReplicaError if the ledger knows a log that is to begin: once it has begun elsewhere, nobody would see it.

    It is no error if another job has started the log since it was `found`.
    """
    fresh = {
        log: state or LogState.fresh(writer) for log, state in found.items() if state is None or state.offset is None
    }
    try:
        books.check(fresh)
    except ReplicaError:
        if positions.found(positions.newest(), [*fresh]) == {log: found[log] for log in fresh}:
            raise


def _refuse_repairs(states: Mapping[LogId, LogState | None]) -> None:
    for log_id, state in states.items():
        refuse_repair(log_id, state)


@dataclass(eq=False, slots=True)
class _Wish:
    """A request to open replicas, all or none."""

    replicas: Sequence[Replica]
    beginning: Beginning | None = None
    gained: Sequence[LogId] = ()
    failure: Exception | None = None


class Opening:
    """Opens the logs of one run, which share its `writer`: many in one commit. From any thread.

    Each log is started by a thread of its own, once its master has answered. A replica that comes while others are
    being opened waits, and is opened with all that wait by then; without those that cannot be opened.
    """

    def __init__(self) -> None:
        self.writer = this_writer()
        self._wanted: GroupCommit[_Wish] = GroupCommit(_open_all)

    def open(self, *replicas: Replica, beginning: Beginning | None = None) -> Sequence[LogId]:
        """Open `replicas`, all of one table, as `open_together` does; those of one master may begin. Returns which logs
        the master has gained. If it raises, none of them is opened.
        """
        mine = _Wish(replicas, beginning)
        self._wanted.take(mine)
        if mine.failure is not None:
            raise mine.failure
        return mine.gained


def _open_all(wishes: Sequence[_Wish]) -> None:
    for _, alike in groupby(sorted(wishes, key=_kind), _kind):
        found = list(alike)
        _open(found)
        if len(found) > 1 and found[0].failure is not None:
            for wish in found:
                _open([wish])


def _kind(wish: _Wish) -> tuple[str, bool]:
    first = wish.replicas[0]
    return log_table(first.log_id).name, first.is_open


def _open(wishes: Sequence[_Wish]) -> None:
    failure: Exception | None = None
    gained: Sequence[LogId] = ()
    try:
        beginnings = [wish.beginning for wish in wishes if wish.beginning is not None]
        gained = open_together([one for wish in wishes for one in wish.replicas], beginnings)
    except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
        failure = error
    for wish in wishes:
        wish.failure = failure
        wish.gained = [log for log in gained if wish.beginning is not None and log in wish.beginning.starts]
