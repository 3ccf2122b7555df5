"""What a table says of something that one run at a time may move: a state, and the right to change it.

The state is JSON in domain metadata of the table, and holds who writes it. Two invariants:

    at most one writer changes a state       every job start claims: it commits its own `writer`. Whoever finds
                                             another writer there has lost it: the newest start owns it.
    a commit leads on from what was read     the transaction is built on the very snapshot that was checked, and every
                                             commit rewrites the domain, so Kernel refuses whoever comes second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, NoReturn, Protocol, Self, TypeVar

from sinks.kernel import KernelConflict, KernelTable, Snapshot
from sinks.log_state import Writer
from sources.errors import ReplicaError, TakenOver
from sources.offsets import LogId, Offset

ATTEMPTS = 5
TAKEN_OVER_HINT = (
    "The job that started last owns the log, and this one wrote nothing more. Stop one of the two; "
    "start this one again only if it shall take the log back."
)

DOMAIN: Final = "logtwin."
"""Before an id: the metadata with the state of what has that id."""


class State(Protocol):
    """What a run may own."""

    @property
    def writer(self) -> Writer: ...

    @property
    def offset(self) -> Offset | None:
        """How far it is, for errors."""

    def as_json(self) -> str: ...

    def claimed_by(self, writer: Writer) -> Self:
        """The same, owned by `writer`, by a commit of its own."""


S = TypeVar("S", bound=State)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found(Generic[S]):
    """The state at one version of the table. A transaction built on it is compared with exactly this."""

    snapshot: Snapshot
    state: S | None


class OwnedState(Generic[S]):
    """The state of `log_id` in `table`. Driver only.

    `parse` is the inverse of `State.as_json` and raises KeyError, TypeError or ValueError; `fresh` is what a run owns
    that is the first; `transaction` names, of a state or none, the application whose transaction version must say the
    same, and which version that is.
    """

    def __init__(
        self,
        table: KernelTable,
        log_id: LogId,
        parse: Callable[[str], S],
        fresh: Callable[[Writer], S],
        transaction: Callable[[S | None], tuple[str, int | None]],
    ) -> None:
        self.domain = f"{DOMAIN}{log_id}"
        self._table = table
        self._log_id = log_id
        self._parse_state = parse
        self._fresh = fresh
        self._transaction = transaction

    def read(self) -> Found[S]:
        """The newest version. Raises ReplicaError where it contradicts itself."""
        snapshot = self._table.snapshot()
        if snapshot is None:
            self.fail(f"the table {self._table.path} is gone", "the log table", "none")
        return self.found(snapshot)

    def read_at(self, version: int) -> Found[S]:
        """A version that the Delta log still has. Raises as `read` does."""
        return self.found(self._table.snapshot_at(version))

    def found(self, snapshot: Snapshot) -> Found[S]:
        """What that version says. Raises as `read` does."""
        state = self.parsed(snapshot, self.domain, self._parse_state)
        app_id, expected = self._transaction(state)
        version = snapshot.transaction_version(app_id)
        if version != expected:
            self.fail(
                "the table contradicts itself about the position",
                f"the transaction version {version} as offset in the domain metadata",
                expected,
            )
        return Found(snapshot, state)

    def parsed(self, snapshot: Snapshot, domain: str, parse: Callable[[str], T]) -> T | None:
        """What a domain of the table says, None where it says nothing. Raises ReplicaError for what no one wrote."""
        text = snapshot.domain(domain)
        try:
            return None if text is None else parse(text)
        except (KeyError, TypeError, ValueError):
            self.fail(f"the domain metadata {domain} cannot be read", "what this version writes", text)

    def claim(self, writer: Writer) -> S:
        """Make `writer` the owner, whoever had it: the newest start owns it. Moves nothing."""
        for _ in range(ATTEMPTS):
            found = self.read()
            claimed = (found.state or self._fresh(writer)).claimed_by(writer)
            try:
                self._table.commit(found.snapshot, domains={self.domain: claimed.as_json()})
            except KernelConflict:
                if self.read().state == claimed:
                    return claimed
                continue
            return claimed
        raise self.taken_over(writer, self.read().state)

    def move(self, found: Found[S], state: S, attempt: Callable[[Snapshot], None]) -> None:
        """`attempt` a commit that leads from `found` to `state`, again where only the table itself has changed.

        Raises TakenOver where the state is not as `found` says any more; nothing of it is in the table then.
        """
        on: Snapshot | None = found.snapshot
        for _ in range(ATTEMPTS):
            if on is None:
                return
            try:
                attempt(on)
            except KernelConflict:
                on = self._unchanged(found, state)
            else:
                return
        if on is not None:
            self.refused(ATTEMPTS)

    def _unchanged(self, found: Found[S], state: S) -> Snapshot | None:
        """After a conflict: the table where it stands as `found` has it, None where `state` has landed after all.

        Raises TakenOver where it is neither.
        """
        newest = self.read()
        if newest.state == state:
            return None
        if newest.state != found.state:
            raise self.taken_over(state.writer, newest.state) from None
        return newest.snapshot

    def held_by(self, writer: Writer) -> S:
        """The newest state, which `writer` has to own. Raises TakenOver."""
        state = self.read().state
        if state is None or state.writer != writer:
            raise self.taken_over(writer, state)
        return state

    def check(self, found: S | None, mine: S) -> None:
        """Raises TakenOver unless the table stands exactly where this run left it."""
        if found != mine:
            raise self.taken_over(mine.writer, found)

    def taken_over(self, mine: Writer, found: S | None) -> TakenOver:
        return TakenOver(
            "another job writes this log",
            log=self._log_id,
            offset=None if found is None else found.offset,
            expected=mine,
            found=None if found is None else found.writer,
            hint=TAKEN_OVER_HINT,
        )

    def refused(self, attempts: int) -> NoReturn:
        self.fail("the table refuses the commit", f"a commit within {attempts} attempts", "a conflict each time")

    def fail(self, problem: str, expected: str, found: object) -> NoReturn:
        raise ReplicaError(
            problem,
            log=self._log_id,
            expected=expected,
            found=found,
            hint="Something else changed the table: look at its history (DESCRIBE HISTORY) before going on.",
        )
