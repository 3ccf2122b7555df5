"""The state of one log in its table, and the right to change it.

The state is JSON in domain metadata of the table, and holds who writes it. Two invariants:

    at most one writer changes a state       every job start claims: it commits its own `writer`. Whoever finds
                                             another writer there has lost it: the newest start owns it.
    a commit leads on from what was read     the transaction is built on the very snapshot that was checked, and every
                                             commit rewrites the domain, so Kernel refuses whoever comes second.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NoReturn, TypeVar

from sinks.delta.delta_log import Version
from sinks.delta.kernel import KernelConflict, KernelTable, Snapshot
from sinks.state.log_state import LogState, Writer
from sources.errors import ReplicaError, TakenOver
from sources.offsets import LogId, Offset, Position

ATTEMPTS = 5
TAKEN_OVER_HINT = (
    "The job that started last owns the log, and this one wrote nothing more. Stop one of the two; "
    "start this one again only if it shall take the log back."
)

DOMAIN: Final = "logtwin."
"""Before an id: the metadata with the state of what has that id."""


def this_writer() -> Writer:
    """This process, as a writer that nobody was before: a run of its own."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return Writer(run=uuid.uuid4().hex, host=socket.gethostname(), pid=os.getpid(), since=since)


T = TypeVar("T")


def state_texts(domains: Mapping[str, str]) -> dict[LogId, str]:
    """The states among the metadata of a table, as they were written, by what has them."""
    found = {}
    for name, text in domains.items():
        try:
            found[LogId.parse(name.removeprefix(DOMAIN))] = text
        except ValueError:
            continue  # of a log's holes, Delta's own, or of a later version
    return found


def state_at(version: Version, log_id: LogId) -> LogState | None:
    """What a version of the table says of the log. Raises ReplicaError where it contradicts itself."""
    state = said_at(version, log_id, f"{DOMAIN}{log_id}", LogState.from_json)
    epoch, offset = (0, None) if state is None else (state.epoch, state.offset)
    transaction = version.transaction_version(Position(log_id, epoch, Offset(0)).app_id)
    if transaction != offset:
        raise _contradiction(
            log_id,
            "the table contradicts itself about the position",
            f"the transaction version {transaction} as offset in the domain metadata",
            offset,
        )
    return state


def said_at(version: Version, log_id: LogId, domain: str, parse: Callable[[str], T]) -> T | None:
    """What a domain of the table says, None where it says nothing. Raises ReplicaError for what no one wrote."""
    text = version.domain(domain)
    try:
        return None if text is None else parse(text)
    except (KeyError, TypeError, ValueError) as error:
        problem = f"the domain metadata {domain} cannot be read"
        raise _contradiction(log_id, problem, "what this version writes", text) from error


def _contradiction(log_id: LogId, problem: str, expected: str, found: object) -> ReplicaError:
    return ReplicaError(
        problem,
        log=log_id,
        expected=expected,
        found=found,
        hint="Something else changed the table: look at its history (DESCRIBE HISTORY) before going on.",
    )


@dataclass(frozen=True, slots=True)
class Found:
    """The state at one version of the table. A transaction built on it is compared with exactly this."""

    snapshot: Snapshot
    state: LogState | None


class OwnedState:
    """The state of `log_id` in `table`. Driver only."""

    def __init__(self, table: KernelTable, log_id: LogId) -> None:
        self.domain = f"{DOMAIN}{log_id}"
        self._table = table
        self._log_id = log_id

    def read(self) -> Found:
        """The newest version. Raises ReplicaError where it contradicts itself."""
        snapshot = self._table.snapshot()
        if snapshot is None:
            self.fail(f"the table {self._table.path} is gone", "the log table", "none")
        return self.found(snapshot)

    def read_at(self, version: int) -> Found:
        """A version that the Delta log still has. Raises as `read` does."""
        return self.found(self._table.snapshot_at(version))

    def found(self, snapshot: Snapshot) -> Found:
        """What that version says. Raises as `read` does."""
        return Found(snapshot, state_at(snapshot, self._log_id))

    def move(self, found: Found, state: LogState, attempt: Callable[[Snapshot], None]) -> None:
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

    def _unchanged(self, found: Found, state: LogState) -> Snapshot | None:
        """After a conflict: the table where it stands as `found` has it, None where `state` has landed after all.

        Raises TakenOver where it is neither.
        """
        newest = self.read()
        if newest.state == state:
            return None
        if newest.state != found.state:
            raise self.taken_over(state.writer, newest.state) from None
        return newest.snapshot

    def check(self, found: LogState | None, mine: LogState) -> None:
        """Raises TakenOver unless the table stands exactly where this run left it."""
        if found != mine:
            raise self.taken_over(mine.writer, found)

    def taken_over(self, mine: Writer, found: LogState | None) -> TakenOver:
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
        raise _contradiction(self._log_id, problem, expected, found)
