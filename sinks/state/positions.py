"""The positions of the logs of one run, which move in their table together, and the right to move them.

What stands there is a `sinks.state.log_state.LogState`, owned as `sinks/state/fence.py` says.

After a conflict each commit reads the newest version: it may have landed unheard, another run may own a log, or only
something else of the table has changed; then it is tried again on that (`decided_commit`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sinks.delta.commits import OwnChain, decided_commit
from sinks.delta.data_file import DataFile
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.state.fence import checked, contradiction, ended_runs, holes_at, position_app, state_in, taken_over
from sinks.state.holes import HOLES_DOMAIN, Holes
from sinks.state.log_state import LogState, Writer
from sources.errors import LogtwinError, ReplicaError
from sources.offsets import LogId, Offset, OffsetRange, Position

_Said = LogState | None | ReplicaError


@dataclass(frozen=True, slots=True)
class Move:
    """The move of one log by a commit of data: from state `mine` to state `to`, with `files`, past what is `lost`."""

    log_id: LogId
    mine: LogState
    to: LogState
    files: Sequence[DataFile] = ()
    lost: Sequence[OffsetRange] = ()

    @property
    def range(self) -> OffsetRange:
        """The new range: from the position on, or from where the log begins."""
        start = self.to.first if self.mine.offset is None else self.mine.offset
        if start is None or self.to.offset is None:
            raise ValueError("a commit of data needs an offset")
        return OffsetRange(start, self.to.offset)

    @property
    def transaction(self) -> tuple[str, int]:
        """The application whose transaction version equals the new position, and that version."""
        end = self.range.end
        return Position(self.log_id, self.to.epoch, end).app_id, end

    def domains_on(self, snapshot: Snapshot) -> dict[str, str]:
        """The metadata that a commit on `snapshot` has to write. The holes only where they change: a backfill may be
        writing them.
        """
        domains = self.to.domains(self.log_id, self.mine)
        if self.lost:
            begins = self.to.first if self.mine.first is None else None
            holes = holes_at(snapshot, self.log_id, self.mine) if begins is None else Holes.before(begins)
            domains[f"{HOLES_DOMAIN}{self.log_id}"] = holes.with_lost(self.lost).as_json()
        return domains


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where the logs of one master begin, all that it has, also those that other jobs replicate: at `starts`, unless
    one of them has begun. Then the others have come since, and begin at 0. `identity` says which logs these are.
    """

    starts: Mapping[LogId, Offset]
    identity: str | None

    def has_begun(self, found: Mapping[LogId, LogState | None]) -> bool:
        return any((state := found[log]) is not None and state.offset is not None for log in self.starts)


@dataclass(frozen=True, slots=True)
class Claimed:
    """The states of claimed logs, and which of the logs their master has gained since others of it began."""

    states: Mapping[LogId, LogState]
    gained: Sequence[LogId] = ()


class Positions:
    """The log table, as far as the logs of one run move in it together. Driver only; one thread at a time."""

    def __init__(self, table: KernelTable) -> None:
        self._table = table
        self._chain: OwnChain[LogId, _Said] = OwnChain()

    def newest(self) -> Snapshot:
        """The newest version. Raises ReplicaError."""
        return self._table.existing()

    def to_commit_on(self) -> Snapshot:
        """Return the version that is believed to be the newest: `commit` finds out. Raises ReplicaError."""
        return self._table.existing(to_commit=True)

    def lost(self, on: Snapshot, held: Mapping[LogId, LogState]) -> dict[LogId, LogtwinError]:
        """Return an error for each log that is not as this run left it at version `on`: TakenOver, or ReplicaError if
        the state cannot be read.
        """
        found = self._chain.values(on.version, held, lambda asked: _said(on, asked))
        others = {log: said for log, said in found.items() if said != held[log]}
        return {
            log: said if isinstance(said, ReplicaError) else taken_over(log, held[log].writer, said)
            for log, said in others.items()
        }

    def found(self, on: Snapshot, logs: Sequence[LogId]) -> dict[LogId, LogState | None]:
        """Read the states of these logs at version `on`. Raises ReplicaError if it contradicts itself."""
        states = _states(on, logs)
        apps = {log: position_app(log, state) for log, state in states.items()}
        versions = self._table.transaction_versions(on, apps.values())
        return {log: checked(log, state, versions[apps[log]]) for log, state in states.items()}

    def held_by(self, on: Snapshot, logs: Sequence[LogId], writer: Writer) -> dict[LogId, LogState]:
        """Read the states at version `on`, all of which `writer` has to own. Raises TakenOver."""
        return {log: owned_by(writer, log, state) for log, state in self.found(on, logs).items()}

    def claim(
        self, on: Snapshot, logs: Sequence[LogId], writer: Writer, beginnings: Sequence[Beginning] = ()
    ) -> Claimed:
        """Make `writer` the owner of these logs in one commit, first tried on `on`, whoever had them: the newest start
        owns them.

        Moves no position. The same commit sets the start of every log that has no position, as `beginnings` say, even
        of logs that other jobs own: so it is fixed once for all logs of a master, and no later job starts
        elsewhere. A run that no log names any more is forgotten. Raises ReplicaError.
        """
        asked = [*dict.fromkeys([*logs, *(log for one in beginnings for log in one.starts)])]
        to = dict[LogId, LogState]()
        claim = Claimed(to)

        def commit(on: Snapshot) -> Claimed:
            nonlocal claim, to
            found = self.found(on, asked)
            to = {log: (found[log] or LogState.fresh(writer)).claimed_by(writer) for log in logs}
            begun, gained = _begun(found, to, writer, beginnings)
            to |= begun
            claim = Claimed({log: to[log] for log in logs}, gained)
            said = writer.domain()
            for log, state in to.items():
                said |= state.domains(log, found[log])
            ended = ended_runs({**on.domains(), **said})
            transactions = dict(Move(log, state, state).transaction for log, state in begun.items())
            version = self._table.commit(on, domains={**said, **dict.fromkeys(ended)}, transactions=transactions)
            self._chain.claimed(version, to)
            return claim

        def decided(on: Snapshot) -> Claimed | None:
            return claim if _states(on, [*to]) == to else None  # it has landed

        return decided_commit(on, commit, self.newest, decided, partial(refused, logs[0]))

    def commit(self, on: Snapshot, moves: Sequence[Move]) -> dict[LogId, LogtwinError]:
        """Move logs in one commit built on `on`, where each has been found as its move says: all of them, or none.

        Returns which of them are `lost` since then, to other runs; nothing of any is in the table then. Raises
        ReplicaError.
        """

        def commit(on: Snapshot) -> dict[LogId, LogtwinError]:
            self._attempt(on, moves)
            return {}

        def decided(on: Snapshot) -> dict[LogId, LogtwinError] | None:
            found = _said(on, [move.log_id for move in moves])
            if any(found[move.log_id] == move.to for move in moves):  # then all of it has landed
                return {}
            return self.lost(on, {move.log_id: move.mine for move in moves}) or None

        return decided_commit(on, commit, self.newest, decided, partial(refused, moves[0].log_id))

    def run_hooks(self, *, checkpoint_aside: bool = False) -> None:
        self._table.run_hooks(checkpoint_aside=checkpoint_aside)

    def _attempt(self, on: Snapshot, moves: Sequence[Move]) -> None:
        version = self._table.commit(
            on,
            list({file.name: file for move in moves for file in move.files}.values()),
            transactions=dict(move.transaction for move in moves),
            domains={name: text for move in moves for name, text in move.domains_on(on).items()},
        )
        self._chain.committed(on.version, version, {move.log_id: move.to for move in moves})


def _begun(
    found: Mapping[LogId, LogState | None],
    claimed: Mapping[LogId, LogState],
    writer: Writer,
    beginnings: Sequence[Beginning],
) -> tuple[dict[LogId, LogState], list[LogId]]:
    """The states of the logs that begin where a version says what was `found`, and which of them were gained."""
    begun, gained = dict[LogId, LogState](), list[LogId]()
    for one in beginnings:
        has_begun = one.has_begun(found)
        for log, start in one.starts.items():
            state = claimed.get(log) or (None if has_begun else found[log] or LogState.fresh(writer))
            if state is None or state.offset is not None:
                continue
            at = Offset(0) if has_begun else start
            begun[log] = replace(state.moved_to(at, first=at, ledger=()), identity=one.identity)
            if has_begun:
                gained.append(log)
    return begun, gained


def _said(on: Snapshot, logs: Sequence[LogId]) -> dict[LogId, _Said]:
    """Return the state of each log at version `on`, or the error that it cannot be read."""
    text_of = on.domain if len(logs) == 1 else on.domains().get
    found = dict[LogId, _Said]()
    for log in logs:
        try:
            found[log] = state_in(text_of, log)
        except ReplicaError as error:
            found[log] = error
    return found


def _states(on: Snapshot, logs: Sequence[LogId]) -> dict[LogId, LogState | None]:
    """Return the states of these logs at version `on`. Raises ReplicaError for one that cannot be read."""
    found = dict[LogId, LogState | None]()
    for log, said in _said(on, logs).items():
        if isinstance(said, ReplicaError):
            raise said
        found[log] = said
    return found


def owned_by(writer: Writer, log_id: LogId, state: LogState | None) -> LogState:
    """Return `state` if `writer` owns it. Raises TakenOver."""
    if state is None or state.writer != writer:
        raise taken_over(log_id, writer, state)
    return state


def refused(log_id: LogId, found: str) -> ReplicaError:
    """Return the error for a commit that the table refuses."""
    return contradiction(log_id, "the table refuses the commit", "a commit that goes through", found)
