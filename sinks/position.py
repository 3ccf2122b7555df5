"""The position of one log, kept by the log table itself, and the right to move it.

What stands there is a `sinks.log_state.LogState`, and the holes (`sinks/holes.py`). Two invariants:

    at most one writer moves a position      every job start claims: it commits its own `writer`. Whoever finds
                                             another writer there has lost the log: the newest start owns it.
    a commit moves it from what was read     the transaction is built on the very snapshot that was checked, and every
                                             commit rewrites the domain, so Kernel refuses whoever comes second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from pyspark.sql import SparkSession

from sinks.files import DataFile
from sinks.healing.rewrite import Rows, TakingOut
from sinks.holes import Holes
from sinks.kernel import KernelConflict, KernelTable, Partition, Snapshot
from sinks.ledger import LedgerRow
from sinks.log_state import LogState, Writer
from sinks.tables import LOG
from sources.errors import RepairPending, ReplicaError, TakenOver
from sources.offsets import LogId, Offset, OffsetRange, Position

_T = TypeVar("_T")
_ATTEMPTS = 5
TAKEN_OVER_HINT = (
    "The job that started last owns the log, and this one wrote nothing more. Stop one of the two; "
    "start this one again only if it shall take the log back."
)


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
    def is_in_repair(self) -> bool:
        return self.state is not None and self.state.repair is not None


class LogTable:
    """The log table, as far as one log is concerned. Driver only."""

    def __init__(self, spark: SparkSession, path: str, log_id: LogId) -> None:
        self._table = KernelTable(spark, path)
        self._log_id = log_id
        self._domain = f"logtwin.{log_id}"
        self._holes_domain = f"logtwin.holes.{log_id}"

    def read(self) -> Held:
        """The newest version. Raises ReplicaError where it contradicts itself."""
        snapshot = self._table.snapshot()
        if snapshot is None:
            self._fail(f"the table {self._table.path} is gone", "the log table", "none")
        return self._held(snapshot)

    def read_at(self, version: int) -> Held:
        """A version that the Delta log still has. Raises as `read` does."""
        return self._held(self._table.snapshot_at(version))

    def claim(self, writer: Writer) -> LogState:
        """Make `writer` the owner of the log, whoever had it: the newest start owns it. Moves no position."""
        for _ in range(_ATTEMPTS):
            held = self.read()
            claimed = (held.state or LogState(writer=writer, commit="")).claimed_by(writer)
            try:
                self._table.commit(held.snapshot, domains={self._domain: claimed.as_json()})
            except KernelConflict:
                if self._landed(claimed):
                    return claimed
                continue
            return claimed
        raise self._taken_over(writer, self.read().state)

    def commit(self, held: Held, state: LogState, files: Sequence[DataFile], lost: Sequence[OffsetRange] = ()) -> None:
        """Move the log from `held` to `state`, which has an offset, together with `files`, past what is `lost`.

        Raises TakenOver where the log is not as `held` says any more; nothing of it is in the table then.
        """
        position = self.position_of(state)
        if position is None:
            raise ValueError("a commit of data needs an offset")

        def attempt(on: Held) -> None:
            domains = {self._domain: state.as_json(), **self._lost(on, state, lost)}
            self._table.commit(on.snapshot, files, transaction=(position.app_id, position.offset), domains=domains)

        self._move(held, state, attempt)

    def mark(self, held: Held, state: LogState) -> None:
        """Say `state`, at the same position, instead of what `held` says. Raises TakenOver as `commit` does.

        The holes are written again as they are: a fill that does not know of `state` yet is refused then.
        """

        def attempt(on: Held) -> None:
            domains = {self._domain: state.as_json()}
            if state.first is not None:
                domains[self._holes_domain] = on.holes.as_json()
            self._table.commit(on.snapshot, domains=domains)

        self._move(held, state, attempt)

    def cut(self, held: Held, state: LogState, out: OffsetRange, holes: Callable[[Holes], Holes]) -> None:
        """Take the rows that start in `out` from the table, and move the log from `held` to `state`, in one commit.

        `holes` gives the holes after it from those before it. A state of another epoch begins that epoch's transaction
        versions. Raises TakenOver as `commit` does, ReplicaError naming a file that cannot be read; nothing has changed
        then.
        """
        position = None if held.state is None or held.state.epoch == state.epoch else self.position_of(state)
        taking = TakingOut(self._table, LOG, Rows.of_log(self._log_id, out))

        def attempt(on: Held) -> None:
            exchange = taking.on(on.snapshot)
            self._table.replace(
                on.snapshot,
                exchange.removed,
                [({}, file) for file in exchange.added],
                domains={self._domain: state.as_json(), self._holes_domain: holes(on.holes).as_json()},
                transaction=None if position is None else (position.app_id, position.offset),
                over_appends=True,  # nobody appends to this log without one of the two domains
            )

        self._move(held, state, attempt)

    def forget(self, below: Offset) -> int:
        """Take the records that start below `below`, which lies under the position, from the table, for good.

        One commit, which also makes the range a hole; the stream's own go on meanwhile. Returns how many rows it took,
        0 where all of the range is a hole already. Raises ReplicaError naming a file that cannot be read.
        """
        out = OffsetRange(Offset(0), below)
        taking = TakingOut(self._table, LOG, Rows.of_log(self._log_id, out))
        for _ in range(_ATTEMPTS):
            held = self.read()
            if held.state is None or held.state.offset is None or below >= held.state.offset:
                at = None if held.state is None else held.state.offset
                self._fail("records at or above the position shall be deleted", f"a position above {below}", at)
            if held.holes.hold(out):
                return 0
            exchange = taking.on(held.snapshot)
            added: list[tuple[Partition, DataFile]] = [({}, file) for file in exchange.added]
            domains = {self._holes_domain: held.holes.with_lost([out]).as_json()}
            try:
                self._table.replace(held.snapshot, exchange.removed, added, domains=domains, over_appends=True)
            except KernelConflict:
                continue
            return exchange.rows
        return self._refused(_ATTEMPTS)

    def _move(self, held: Held, state: LogState, attempt: Callable[[Held], None]) -> None:
        """`attempt` a commit that leads from `held` to `state`, again where only the table itself has changed."""
        on: Held | None = held
        for _ in range(_ATTEMPTS):
            if on is None:
                return
            try:
                attempt(on)
            except KernelConflict:
                on = self._unchanged(held, state)
            else:
                return
        if on is not None:
            self._refused(_ATTEMPTS)

    def _unchanged(self, held: Held, state: LogState) -> Held | None:
        """After a conflict: the log as it stands where `held` found it, None where `state` has landed after all.

        Raises TakenOver where it is neither.
        """
        newest = self.read()
        if newest.state == state:
            return None
        if newest.state != held.state:
            raise self._taken_over(state.writer, newest.state) from None
        return newest

    def _refused(self, attempts: int) -> NoReturn:
        self._fail("the table refuses the commit", f"a commit within {attempts} attempts", "a conflict each time")

    def fill(self, held: Held, files: Sequence[DataFile], ledger: Sequence[LedgerRow]) -> Holes | None:
        """Commit `files`, the records of `ledger`'s ranges, which lie in holes of `held`; the stream may go on.

        What the newest fill that `held` knows owes to the ledger is there: this one takes its place. Returns the holes
        that are left; None where there was another fill or a repair since, or the ranges are not missing any more. Then
        the files are left to VACUUM: a commit that Kernel could not vouch for may have them.
        """
        filled = [row.range for row in ledger]
        on = held
        for _ in range(_ATTEMPTS):
            holes = on.holes.filled(filled, ledger)
            try:
                self._table.commit(on.snapshot, files, domains={self._holes_domain: holes.as_json()})
            except KernelConflict:
                on = self.read()
                if on.holes == holes:
                    return holes
                is_other = (on.epoch, on.holes.fills) != (held.epoch, held.holes.fills) or on.is_in_repair
                if is_other or not all(map(on.holes.hold, filled)):
                    return None
                continue
            return holes
        return self._refused(_ATTEMPTS)

    def refuse_repair(self, state: LogState | None) -> None:
        """Raises RepairPending where a repair was begun and not brought to its end."""
        if state is not None and state.repair is not None:
            raise RepairPending(
                "a repair of this log was begun and is not done",
                log=self._log_id,
                offset=state.repair.to,
                expected="a log without a pending repair",
                found=f"one that goes back to {state.repair.to}, where epoch {state.repair.epoch} begins",
                hint="logtwin repair takes it to its end.",
            )

    def position_of(self, state: LogState) -> Position | None:
        return None if state.offset is None else Position(self._log_id, state.epoch, state.offset)

    def held_by(self, writer: Writer) -> LogState:
        """The newest state, which `writer` has to own. Raises TakenOver."""
        state = self.read().state
        if state is None or state.writer != writer:
            raise self._taken_over(writer, state)
        return state

    def check(self, held: Held, mine: LogState) -> None:
        """Raises TakenOver unless the table stands exactly where this run left it."""
        if held.state != mine:
            raise self._taken_over(mine.writer, held.state)

    def run_hooks(self) -> None:
        self._table.run_hooks()

    def _held(self, snapshot: Snapshot) -> Held:
        text, holes_text = snapshot.domain(self._domain), snapshot.domain(self._holes_domain)
        state = None if text is None else self._parse(LogState.from_json, text, self._domain)
        self._check_agreement(snapshot, state)
        if holes_text is not None:
            return Held(snapshot, state, self._parse(Holes.from_json, holes_text, self._holes_domain))
        first = None if state is None else state.first
        return Held(snapshot, state, Holes() if first is None else Holes.before(first))

    def _landed(self, state: LogState) -> bool:
        return self.read().state == state

    def _lost(self, held: Held, state: LogState, lost: Sequence[OffsetRange]) -> dict[str, str]:
        """The holes' metadata, where it changes: elsewhere a backfill may be writing it."""
        if not lost:
            return {}
        begins = state.first is not None and (held.state is None or held.state.first is None)
        holes = Holes.before(state.first) if begins and state.first is not None else held.holes
        return {self._holes_domain: holes.with_lost(lost).as_json()}

    def _parse(self, parse: Callable[[str], _T], text: str, domain: str) -> _T:
        try:
            return parse(text)
        except (KeyError, TypeError, ValueError):
            self._fail(f"the domain metadata {domain} cannot be read", "what this version writes", text)

    def _check_agreement(self, snapshot: Snapshot, state: LogState | None) -> None:
        epoch, offset = (0, None) if state is None else (state.epoch, state.offset)
        version = snapshot.transaction_version(Position(self._log_id, epoch, Offset(0)).app_id)
        if version != offset:
            self._fail(
                "the table contradicts itself about the position",
                f"the transaction version {version} as offset in the domain metadata",
                offset,
            )

    def _fail(self, problem: str, expected: str, found: object) -> NoReturn:
        raise ReplicaError(
            problem,
            log=self._log_id,
            expected=expected,
            found=found,
            hint="Something else changed the table: look at its history (DESCRIBE HISTORY) before going on.",
        )

    def _taken_over(self, mine: Writer, found: LogState | None) -> TakenOver:
        return TakenOver(
            "another job writes this log",
            log=self._log_id,
            offset=None if found is None else found.offset,
            expected=mine,
            found=None if found is None else found.writer,
            hint=TAKEN_OVER_HINT,
        )
