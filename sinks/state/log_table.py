"""The log table, as far as one log is concerned: its state, its holes, and how they change other than by the stream.

The state is a `sinks.state.log_state.LogState`, owned as `sinks/state/fence.py` says; the holes are in
`sinks/state/holes.py`.

After a conflict each commit reads the newest version: it may have landed unheard, another run may own the log, or only
something else of the table has changed; then it is tried again on that (`decided_commit`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from sinks.delta.commits import decided_commit, retrying
from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.state.fence import contradiction, holes_at, refuse_repair, state_at, taken_over
from sinks.state.holes import HOLES_DOMAIN, Holes, TakenOut
from sinks.state.log_state import LogState, Writer
from sinks.state.positions import Positions, owned_by, refused
from sinks.state.rewrite import Exchange, RowSelection, TakingOut
from sinks.tables import log_table
from sinks.values.ledger_row import LedgerRow
from sources.errors import ReplicaError
from sources.offsets import LogId, Offset, OffsetRange, Position


@dataclass(frozen=True, slots=True)
class Held:
    """The log at one version of the table. A transaction built on it is compared with exactly this."""

    snapshot: Snapshot
    state: LogState | None
    holes: Holes

    @property
    def epoch(self) -> int:
        return 0 if self.state is None else self.state.epoch

    @property
    def offset(self) -> Offset:
        """The position, 0 before the first data."""
        return Offset(0) if self.state is None or self.state.offset is None else self.state.offset

    @property
    def is_in_repair(self) -> bool:
        return self.state is not None and self.state.repair is not None


def held_at(snapshot: Snapshot, log_id: LogId) -> Held:
    """Read the log's state and holes at a version. Raises ReplicaError if the version contradicts itself."""
    state = state_at(snapshot, log_id)
    return Held(snapshot, state, holes_at(snapshot, log_id, state))


class LogTable:
    """The log table, as far as one log is concerned. Driver only."""

    def __init__(self, spark: SparkSession, path: str, log_id: LogId) -> None:
        self._table = KernelTable(spark, path)
        self.log_id = log_id
        self._holes_domain = f"{HOLES_DOMAIN}{log_id}"

    def read(self) -> Held:
        """The newest version. Raises ReplicaError where it contradicts itself."""
        return held_at(self._table.existing(self.log_id), self.log_id)

    def read_at(self, version: int) -> Held:
        """A version that the Delta log still has. Raises as `read` does."""
        return held_at(self._table.snapshot_at(version), self.log_id)

    def claim(self, writer: Writer) -> LogState:
        """Claim this log alone, as `Positions.claim` does."""
        claim = Positions(self._table).claim(self._table.existing(self.log_id), [self.log_id], writer)
        return claim.states[self.log_id]

    def mark(self, held: Held, state: LogState) -> None:
        """Replace the state that `held` has by `state`, at the same position.

        Raises TakenOver where it is not as `held` says any more; nothing of it is in the table then.

        The holes are written again as they are: a fill that does not know of `state` yet is refused then.
        """

        def holes(on: Held) -> dict[str, str]:
            return {} if state.first is None else {self._holes_domain: on.holes.as_json()}

        self._move(held, state, holes)

    def cut(self, held: Held, state: LogState, out: OffsetRange, holes: Callable[[Holes], Holes]) -> None:
        """Take the rows that start in `out` from the table, and move the log from `held` to `state`, in one commit.

        `holes` gives the holes after it from those before it. A state of another epoch begins that epoch's transaction
        versions. Raises TakenOver as `mark` does, ReplicaError naming a file that cannot be read; nothing has changed
        then.
        """
        taking = self._taking(RowSelection.of_log(self.log_id, out))
        self._move(held, state, lambda on: {self._holes_domain: holes(on.holes).as_json()}, taking)

    def take_out(self, held: Held, state: LogState, taken: Sequence[TakenOut], lost: Sequence[StoredFile]) -> None:
        """Make holes of what is `taken` of each log, this one or another, and move this one from `held` to `state`.

        One commit, which removes the files `lost`, too; the streams of the others go on. Raises as `cut` does, and
        RepairPending or ReplicaError where another log or a lost file is not as it was found any more.
        """

        def holes(on: Held) -> dict[str, str]:
            return dict(_without(one, on.snapshot) for one in taken)

        self._move(held, state, holes, self._taking(RowSelection.taken_out(taken, lost)))

    def _move(
        self, held: Held, state: LogState, holes: Callable[[Held], dict[str, str]], taking: TakingOut | None = None
    ) -> None:
        """Replace the state that `held` has by `state`, write `holes`, and take rows out, all in one commit.

        `holes` gives the metadata to be written on the version that it is given. Raises TakenOver where the log is not
        as `held` says any more; nothing of it is in the table then.
        """
        begins_epoch = held.state is not None and held.state.epoch != state.epoch
        position = self.position_of(state) if begins_epoch else None

        def commit(on: Held) -> bool:
            exchange = Exchange() if taking is None else taking.on(on.snapshot)
            self._table.replace(
                on.snapshot,
                exchange.removed,
                [({}, file) for file in exchange.added],
                domains={**state.domains(self.log_id, on.state), **holes(on)},
                transaction=None if position is None else (position.app_id, position.offset),
                over_appends=True,  # nobody appends to this log without one of the two domains
            )
            return True

        def decided(on: Held) -> bool | None:
            if on.state == state:
                return True  # it has landed
            if on.state != held.state:
                raise taken_over(self.log_id, state.writer, on.state)
            return None

        decided_commit(held, commit, self.read, decided, self.refused)

    def _taking(self, rows: RowSelection) -> TakingOut:
        return TakingOut(self._table, log_table(self.log_id), rows)

    def forget(self, below: Offset) -> int:
        """Take the records that start below `below`, which lies under the position, from the table, for good.

        One commit, which also makes the range a hole; the stream's own go on meanwhile. Returns how many rows it took,
        0 where all of the range is a hole already. Raises ReplicaError naming a file that cannot be read.
        """
        out = OffsetRange(Offset(0), below)
        taking = self._taking(RowSelection.of_log(self.log_id, out))
        exchange = Exchange()
        for attempt in retrying(self.refused):
            with attempt:
                held = self.read()
                if held.state is None or held.state.offset is None or below >= held.state.offset:
                    at = None if held.state is None else held.state.offset
                    problem = "records at or above the position shall be deleted"
                    raise contradiction(self.log_id, problem, f"a position above {below}", at)
                if held.holes.hold(out):
                    return 0
                exchange = taking.on(held.snapshot)
                self._table.replace(
                    held.snapshot,
                    exchange.removed,
                    [({}, file) for file in exchange.added],
                    domains={self._holes_domain: held.holes.with_lost([out]).as_json()},
                    over_appends=True,
                )
        return exchange.rows

    def fill(self, held: Held, files: Sequence[DataFile], ledger: Sequence[LedgerRow]) -> Holes | None:
        """Commit `files`, the records of `ledger`'s ranges, which lie in holes of `held`; the stream may go on.

        What the newest fill that `held` knows owes to the ledger is there: this one takes its place. Returns the holes
        that are left; None where there was another fill or a repair since, or the ranges are not missing any more. Then
        the files are left to VACUUM: a commit that Kernel could not vouch for may have them.
        """
        filled, holes = [row.range for row in ledger], held.holes

        def commit(on: Held) -> bool:
            nonlocal holes
            holes = on.holes.filled(filled, ledger)
            self._table.commit(on.snapshot, files, domains={self._holes_domain: holes.as_json()})
            return True

        def decided(on: Held) -> bool | None:
            if on.holes == holes:
                return True  # it has landed
            is_other = (on.epoch, on.holes.fills) != (held.epoch, held.holes.fills) or on.is_in_repair
            return False if is_other or not all(map(on.holes.hold, filled)) else None

        return holes if decided_commit(held, commit, self.read, decided, self.refused) else None

    def position_of(self, state: LogState) -> Position | None:
        return None if state.offset is None else Position(self.log_id, state.epoch, state.offset)

    def held_by(self, writer: Writer) -> tuple[Held, LogState]:
        """Read the newest version, and its state, which `writer` has to own. Raises TakenOver."""
        held = self.read()
        return held, owned_by(writer, self.log_id, held.state)

    def refused(self, found: str) -> ReplicaError:
        """Return the error for a commit that the table refuses."""
        return refused(self.log_id, found)

    def run_hooks(self) -> None:
        self._table.run_hooks()


def _without(taken: TakenOut, on: Snapshot) -> tuple[str, str]:
    """The holes' metadata of a log after a commit on that version that takes out what is `taken` of it.

    Raises RepairPending, ReplicaError.
    """
    held = held_at(on, taken.log_id)
    refuse_repair(taken.log_id, held.state)
    if held.epoch != taken.epoch:
        problem = "the log went back while its damage was looked at"
        raise contradiction(taken.log_id, problem, f"epoch {taken.epoch}", held.epoch)
    return f"{HOLES_DOMAIN}{taken.log_id}", held.holes.with_taken_out(taken.ranges).as_json()
