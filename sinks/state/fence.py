"""The state of one log in its table, and the right to change it.

The state is JSON in domain metadata of the table (`sinks/state/log_state.py`), and names who writes it. Two invariants:

    at most one writer changes a state       every job start claims: it commits its own `writer`. Whoever finds
                                             another writer there has lost it: the newest start owns it.
    a commit leads on from what was read     the transaction is built on the very snapshot that was checked, and every
                                             commit of a log, and every claim, rewrites the domain that moves, so Kernel
                                             refuses whoever comes second.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeVar

from sinks.delta.delta_log import Version
from sinks.state.holes import HOLES_DOMAIN, Holes
from sinks.state.log_state import DOMAIN, RUN_DOMAIN, LogState, Writer, new_id, run_of
from sources.errors import RepairPending, ReplicaError, TakenOver, WayBackPending
from sources.loss import Condition
from sources.offsets import LogId, Offset, Position

TAKEN_OVER_HINT = (
    "The job that started last owns the log, and this one wrote nothing more. Stop one of the two; "
    "start this one again only if it shall take the log back."
)


def this_writer() -> Writer:
    """Return this process as a new writer: a run of its own."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return Writer(run=new_id(), host=socket.gethostname(), pid=os.getpid(), since=since)


T = TypeVar("T")


def logs_in(domains: Iterable[str]) -> list[LogId]:
    """The logs that have a state among the `domains` of a table."""
    found = []
    for name in domains:
        try:
            found.append(LogId.parse(name.removeprefix(DOMAIN)))
        except ValueError:
            continue  # of a log's holes, of a run, Delta's own, or of a later version
    return found


def ended_runs(domains: Mapping[str, str]) -> list[str]:
    """The domains of runs that no state names any more."""
    runs = {name for name in domains if name.startswith(RUN_DOMAIN)}
    named = {run_of(domains[f"{DOMAIN}{log_id}"]) for log_id in logs_in(domains)} if runs else set()
    return sorted(runs - {f"{RUN_DOMAIN}{run}" for run in named})


def state_in(text_of: Callable[[str], str | None], log_id: LogId) -> LogState | None:
    """Read the log's state from the text of each domain of a version.

    Raises ReplicaError for what no one wrote.
    """
    try:
        return LogState.of_domains(log_id, text_of)
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(log_id, f"{DOMAIN}{log_id}") from error


def state_at(version: Version, log_id: LogId) -> LogState | None:
    """Read the log's state at a version of the table. Raises ReplicaError if the version contradicts itself."""
    state = state_in(version.domain, log_id)
    return checked(log_id, state, version.transaction_version(position_app(log_id, state)))


def position_app(log_id: LogId, state: LogState | None) -> str:
    """The application whose transaction version equals the offset of `state`."""
    return Position(log_id, 0 if state is None else state.epoch, Offset(0)).app_id


def checked(log_id: LogId, state: LogState | None, transaction: int | None) -> LogState | None:
    """Return `state` if its offset equals the `transaction` version of the table. Raises ReplicaError."""
    offset = None if state is None else state.offset
    if transaction != offset:
        raise contradiction(
            log_id,
            "the table contradicts itself about the position",
            f"the transaction version {transaction} as offset in the domain metadata",
            offset,
        )
    return state


def holes_in(text_of: Callable[[str], str | None], log_id: LogId, state: LogState | None) -> Holes:
    """Read the holes of a log with this `state` from the text of each domain of a version (`Version.domain`).

    Raises ReplicaError for what no one wrote.
    """
    domain = f"{HOLES_DOMAIN}{log_id}"
    text = text_of(domain)
    if text is None:
        first = None if state is None else state.first
        return Holes() if first is None else Holes.before(first)
    try:
        return Holes.from_json(text)
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(log_id, domain) from error


def holes_at(version: Version, log_id: LogId, state: LogState | None) -> Holes:
    """Read the log's holes at a version of the table."""
    return holes_in(version.domain, log_id, state)


def refuse_repair(log_id: LogId, state: LogState | None) -> None:
    """Raise RepairPending if a repair was begun and not finished."""
    if state is not None and state.repair is not None:
        found = state.repair.found
        is_failed_over = found is not None and found.condition is Condition.FAILED_OVER
        raise (WayBackPending if is_failed_over else RepairPending)(
            "a repair of this log was begun and is not done",
            log=log_id,
            offset=state.repair.to,
            expected="a log without a pending repair",
            found=f"one that goes back to {state.repair.to}, where epoch {state.repair.epoch} begins",
            hint="logtwin repair takes it to its end.",
        )


def taken_over(log_id: LogId, mine: Writer, found: LogState | None) -> TakenOver:
    """Return the error for a lost log: it is not as `mine` left it, because another run wrote what was `found`."""
    return TakenOver(
        "another job writes this log",
        log=log_id,
        offset=None if found is None else found.offset,
        expected=mine,
        found=None if found is None else found.writer,
        hint=TAKEN_OVER_HINT,
    )


def _unreadable(log_id: LogId, domain: str) -> ReplicaError:
    return contradiction(log_id, f"the domain metadata {domain} cannot be read", "what this version writes", "other")


def contradiction(log_id: LogId, problem: str, expected: str, found: object) -> ReplicaError:
    """Return the error for a table that is not as its writers leave it."""
    return ReplicaError(
        problem,
        log=log_id,
        expected=expected,
        found=found,
        hint="Something else changed the table: look at its history (DESCRIBE HISTORY) before going on.",
    )
