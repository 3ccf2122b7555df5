"""Open the replicas of a run's logs, and let those begin that are fresh: many in one commit."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from sinks.batch.replica import Replica
from sinks.books.bookkeeping import Bookkeeping
from sinks.delta.commits import GroupCommit
from sinks.state.fence import refuse_repair, this_writer
from sinks.state.log_state import LogState, Writer
from sinks.state.positions import Beginning, Claimed, Positions
from sinks.tables import log_table
from sinks.warehouse import ensure_tables
from sources.errors import ReplicaError
from sources.offsets import LogId

_log = logging.getLogger(__name__)


def open_together(replicas: Sequence[Replica], beginnings: Sequence[Beginning] = ()) -> Sequence[LogId]:
    """Make the tables, take the logs, restore what their newest commits owe: in one commit for all of `replicas`, which
    have one table, one writer and are all fresh or all opened before. Fresh logs begin with it, as `beginnings` say;
    those that their masters have gained since are returned.

    Their maps may take long, and do not follow yet (`Replica.follow`). Opened again, they go on where they stand and
    take nothing back from a run that started later. Raises ConfigurationError (a table that is not ours), ReplicaError,
    TakenOver; RepairPending, and leaves the logs to the repair then. Nothing is opened if it raises.
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

    A log that another job has begun since it was `found` is none.
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
