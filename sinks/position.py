"""The position of one log, kept by the log table itself, and the right to move it.

What a log's domain metadata (``logtwin.<log id>``) says, in JSON, is rewritten by every commit of that log:

    epoch, offset   the position; `offset` equals the transaction version of `Position.app_id`, written in the same
                    commit. null before the first data
    first           where the replica begins
    writer          the run that owns the log: run id, host, process, since when
    commit          a random id of the commit, by which its maker knows it again
    link            the last record below the position, by its checksum
    ledger, incidents, quarantined
                    what the newest commit of data owes to other tables: rows, and files that are written
    branched_at     where this epoch's history left the one before
    repair          a repair that was begun: where it will go back to

Where the table lacks something below the position, the holes (`sinks/holes.py`) say so, in metadata of their own.

Two invariants:

    at most one writer moves a position      every job start claims: it commits its own `writer`. Whoever finds
                                             another writer there has lost the log: the newest start owns it.
    a commit moves it from what was read     the transaction is built on the very snapshot that was checked, and every
                                             commit rewrites the domain, so Kernel refuses whoever comes second.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

from pyspark.sql import SparkSession

from sinks.continuity import Link
from sinks.files import DataFile
from sinks.holes import Holes
from sinks.incidents import Incident
from sinks.kernel import KernelConflict, KernelTable, Snapshot
from sinks.ledger import LedgerRow
from sources.errors import ReplicaError, TakenOver
from sources.offsets import LogId, Offset, OffsetRange, Position

_T = TypeVar("_T")
_ATTEMPTS = 5
TAKEN_OVER_HINT = (
    "The job that started last owns the log, and this one wrote nothing more. Stop one of the two; "
    "start this one again only if it shall take the log back."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Who writes a log: one run of a job."""

    run: str
    host: str
    pid: int
    since: str  # ISO 8601, UTC

    @classmethod
    def of_this_process(cls) -> Writer:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(run=uuid.uuid4().hex, host=socket.gethostname(), pid=os.getpid(), since=since)

    def __str__(self) -> str:
        return f"run {self.run} (process {self.pid} on {self.host}, since {self.since})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRepair:
    """A repair that was decided and marked: the log goes back to `to`, and `epoch` begins there."""

    to: Offset
    epoch: int

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PendingRepair:
        return cls(to=values["to"], epoch=values["epoch"])


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """What the table says of one log; see the module's docstring."""

    writer: Writer
    commit: str
    epoch: int = 0
    offset: Offset | None = None
    first: Offset | None = None
    link: Link | None = None
    ledger: tuple[LedgerRow, ...] = ()
    incidents: tuple[Incident, ...] = ()
    quarantined: tuple[DataFile, ...] = ()
    branched_at: Offset | None = None
    repair: PendingRepair | None = None

    def as_json(self) -> str:
        values = {**asdict(self), "incidents": [one.as_dict() for one in self.incidents]}
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> LogState:
        """The inverse of `as_json`. Raises KeyError, TypeError or ValueError for what it did not write."""
        values = json.loads(text)
        values["writer"] = Writer(**values["writer"])
        values["ledger"] = tuple(LedgerRow.from_dict(row) for row in values["ledger"])
        values["link"] = _optional(Link.from_dict, values.get("link"))
        values["incidents"] = tuple(Incident.from_dict(one) for one in values.get("incidents", ()))
        values["quarantined"] = tuple(DataFile(**one) for one in values.get("quarantined", ()))
        values["repair"] = _optional(PendingRepair.from_dict, values.get("repair"))
        return cls(**values)

    @property
    def newest_stored_us(self) -> int | None:
        """When the master stored the newest message of the last commit, by its clock: µs since 1970, UTC.

        The record at `offset` was not stored before that. None without a message in that commit.
        """
        stored = (row.last_store_timestamp for row in self.ledger)
        return max((at_us for at_us in stored if at_us is not None), default=None)

    def claimed_by(self, writer: Writer) -> LogState:
        return replace(self, writer=writer, commit=uuid.uuid4().hex)

    def moved_to(
        self,
        end: Offset,
        *,
        first: Offset,
        ledger: Sequence[LedgerRow],
        link: Link | None = None,
        incidents: Sequence[Incident] = (),
        quarantined: Sequence[DataFile] = (),
    ) -> LogState:
        """The state after a commit up to `end`; `first` counts only for a replica that begins."""
        return replace(
            self,
            offset=end,
            first=first if self.first is None else self.first,
            ledger=tuple(ledger),
            link=link,
            incidents=tuple(incidents),
            quarantined=tuple(quarantined),
            commit=uuid.uuid4().hex,
        )


def _optional(parse: Callable[[dict[str, Any]], _T], values: dict[str, Any] | None) -> _T | None:
    return None if values is None else parse(values)


@dataclass(frozen=True, slots=True)
class Held:
    """The log at one version of the table. A transaction built on it is compared with exactly this."""

    snapshot: Snapshot
    state: LogState | None
    holes: Holes


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
        text, holes_text = snapshot.domain(self._domain), snapshot.domain(self._holes_domain)
        state = None if text is None else self._parse(LogState.from_json, text, self._domain)
        self._check_agreement(snapshot, state)
        if holes_text is not None:
            return Held(snapshot, state, self._parse(Holes.from_json, holes_text, self._holes_domain))
        first = None if state is None else state.first
        return Held(snapshot, state, Holes() if first is None else Holes.before(first))

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
        for _ in range(_ATTEMPTS):
            try:
                self._table.commit(
                    held.snapshot,
                    files,
                    transaction=(position.app_id, position.offset),
                    domains={self._domain: state.as_json(), **self._lost(held, state, lost)},
                )
            except KernelConflict:
                again = self.read()
                if again.state == state:
                    return
                if again.state != held.state:
                    raise self._taken_over(state.writer, again.state) from None
                held = again  # a change of the table itself; the log stands where it stood
                continue
            return
        self._fail("the table refuses the commit", f"a commit within {_ATTEMPTS} attempts", "a conflict each time")

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
