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
from datetime import UTC, datetime
from typing import Final, TypeVar

from sinks.delta.delta_log import Version
from sinks.state.log_state import LogState, Writer
from sources.errors import ReplicaError, TakenOver
from sources.offsets import LogId, Offset, Position

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
        raise contradiction(
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
        raise contradiction(log_id, problem, "what this version writes", text) from error


def taken_over(log_id: LogId, mine: Writer, found: LogState | None) -> TakenOver:
    """That the log is not as `mine` left it: somebody else wrote what was `found`."""
    return TakenOver(
        "another job writes this log",
        log=log_id,
        offset=None if found is None else found.offset,
        expected=mine,
        found=None if found is None else found.writer,
        hint=TAKEN_OVER_HINT,
    )


def contradiction(log_id: LogId, problem: str, expected: str, found: object) -> ReplicaError:
    """That the table is not as its writers leave it."""
    return ReplicaError(
        problem,
        log=log_id,
        expected=expected,
        found=found,
        hint="Something else changed the table: look at its history (DESCRIBE HISTORY) before going on.",
    )
