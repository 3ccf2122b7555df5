"""Open the replicas of a run's logs, many in one commit, and let those begin that are fresh."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from sinks.batch.replica import Replica
from sinks.books.bookkeeping import Bookkeeping
from sinks.delta.group_commit import GroupCommit
from sinks.delta.kernel import KernelConflict
from sinks.delta.retries import retrying
from sinks.state.fence import refuse_repair, this_writer
from sinks.state.log_state import LogState
from sinks.state.positions import Move, owned_by, refused
from sinks.tables import log_table
from sinks.warehouse import ensure_tables
from sources.offsets import LogId, Offset

_log = logging.getLogger(__name__)


def open_together(replicas: Sequence[Replica]) -> None:
    """Make the tables, take the logs, restore what their newest commits owe: in one commit for all of `replicas`, which
    have one table, one writer and are all fresh or all opened before.

    Their maps may take long, and do not follow yet (`Replica.follow`). Opened again, they go on where they stand and
    take nothing back from a run that started later. Raises ConfigurationError (a table that is not ours), ReplicaError,
    TakenOver; RepairPending, and leaves the logs to the repair then. Nothing is opened if it raises.
    """
    first = replicas[0]
    ensure_tables(first.spark, first.warehouse, log_table(first.log_id))
    positions, books = first.positions, Bookkeeping(first.spark, first.warehouse)
    logs = [one.log_id for one in replicas]
    on = positions.newest()
    _refuse_repairs(positions.found(on, logs))
    take = positions.held_by if first.is_open else positions.claim
    states = take(on, logs, first.writer)
    _refuse_repairs(states)
    books.check(states)
    restored = books.settle(states)
    for one in replicas:
        one.take(states)
    if restored:
        _log.info("%s: restored what the newest commit owes to other tables", ", ".join(map(str, restored)))
    positions.run_hooks(checkpoint_aside=True)
    books.run_hooks(checkpoint_aside=True)


def begin_together(fresh: Sequence[Replica], starts: Mapping[LogId, Offset], identity: str | None) -> list[LogId]:
    """Let `fresh` replicas of one master's logs, which are open, begin with the logs that `identity` names (`Known`).

    If none of the master's logs has a position, all of them begin where `starts` says, in one commit: also those that
    other jobs replicate, so that whichever comes first decides for all, and whatever happens, no later start begins
    elsewhere. Otherwise the master has gained the `fresh` ones since: they begin at 0, and are returned.
    Raises TakenOver, ReplicaError.
    """
    if not fresh:
        return []
    ours = {one.log_id: one for one in fresh}
    first = fresh[0]
    positions, writer = first.positions, first.writer
    gained: list[LogId] = []
    for attempt in retrying(partial(refused, first.log_id)):
        with attempt:
            on = positions.newest()
            found = positions.found(on, [*starts])
            for log_id, one in ours.items():
                one.take({log_id: owned_by(writer, log_id, found[log_id])})  # another job may have begun it
            is_begun = any(state is not None and state.offset is not None for state in found.values())
            moves = []
            for log_id in ours if is_begun else starts:
                mine = found[log_id] or LogState.fresh(writer)
                if mine.offset is None:
                    at = Offset(0) if is_begun else starts[log_id]
                    to = replace(mine.moved_to(at, first=at, ledger=()), identity=identity)
                    moves.append(Move(log_id, mine, to))
            if moves and positions.commit(on, moves):
                raise KernelConflict("another job has claimed or begun some of the logs")
            for move in moves:
                if move.log_id in ours:
                    ours[move.log_id].moved(move)
            gained = [move.log_id for move in moves] if is_begun else []
    return gained


def _refuse_repairs(states: Mapping[LogId, LogState | None]) -> None:
    for log_id, state in states.items():
        refuse_repair(log_id, state)


@dataclass(eq=False, slots=True)
class _Wish:
    """A request to open replicas, all or none."""

    replicas: Sequence[Replica]
    failure: Exception | None = None


class Opening:
    """Opens the logs of one run, which share its `writer`: many in one commit. From any thread.

    Each log is started by a thread of its own, once its master has answered. A replica that comes while others are
    being opened waits, and is opened with all that wait by then; without those that cannot be opened.
    """

    def __init__(self) -> None:
        self.writer = this_writer()
        self._wanted: GroupCommit[_Wish] = GroupCommit(_open_all)

    def open(self, *replicas: Replica) -> None:
        """Open `replicas`, all of one table, as `open_together` does. If it raises, none of them is opened."""
        mine = _Wish(replicas)
        self._wanted.take(mine)
        if mine.failure is not None:
            raise mine.failure


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
    try:
        open_together([one for wish in wishes for one in wish.replicas])
    except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
        failure = error
    for wish in wishes:
        wish.failure = failure
