"""What the log table says of one log: where it stands, who writes it, what its newest commit owes to other tables.

JSON in domain metadata of the table, apart by how often it changes. A key without a value is left out:

    logtwin.<log id>            what moves; every commit of that log rewrites it (`sinks/state/positions.py`)
        run                     the run that owns the log
        commit                  a random id of the commit, by which its writer recognizes it
        offset                  the position; equals the transaction version of `Position.app_id`, written in the same
                                commit. None before the first data
        link                    the last record below the position, by its checksum
        mark                    in which of the master's histories the position lies (`sources.master.Known`)
        ledger, incidents, quarantined
                                what the newest commit of data owes to other tables: rows, and files that are written
    logtwin.standing.<log id>   what seldom changes; absent as long as it has no value. A commit writes it when it does
        epoch                   of the position
        first                   where the replica begins
        identity                which log of that name this is (`sources.master.Known`)
        epochs                  for a group that elects its master: the epochs below the position (`sources/epochs.py`)
        branched_at             where this epoch's history left the one before
        repair                  a repair that was begun: where it will go back to
    logtwin.run.<run>           who that run is: host, process, since when. One for all logs that the run has

A table of an older version has all of it in ``logtwin.<log id>``, with the writer in place of the run. It is read as it
is; the first claim takes it apart, before anything else is written.

Whoever moves a log and whoever claims it rewrite one domain, ``logtwin.<log id>``, so Kernel refuses the second of the
two: the owner cannot change between the snapshot that was checked and the commit. The other two domains need no
conflict of their own: who writes them writes that one, too. Only the domain of a run has two writers: its own claims,
and the claim that removes it because no log is the run's any more. Both write it, so that a run cannot lose its domain
while it claims.

Holes, the ranges below the position that the table lacks, have metadata of their own (`sinks/state/holes.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Final, TypeVar

from pydantic import BeforeValidator, ConfigDict, PlainSerializer, with_config

from sinks.delta.data_file import DataFile
from sinks.state.holes import TakenOut
from sinks.state.stored_json import StoredJson
from sinks.values.continuity import Link
from sinks.values.incident import Incident
from sinks.values.ledger_row import LedgerRow, from_values, values_of
from sources.epochs import Epochs
from sources.loss import Condition
from sources.master import Known
from sources.offsets import END, LogId, Offset, OffsetRange

_T = TypeVar("_T")

DOMAIN: Final = "logtwin."
"""Before an id: the metadata with the state of what has that id."""
STANDING_DOMAIN: Final = "logtwin.standing."
RUN_DOMAIN: Final = "logtwin.run."


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The run of a job that writes a log."""

    run: str
    host: str
    pid: int
    since: str  # ISO 8601, UTC

    def __str__(self) -> str:
        return f"run {self.run} (process {self.pid} on {self.host}, since {self.since})"

    def domain(self) -> dict[str, str]:
        """The metadata that says who the run is."""
        who = {"host": self.host, "pid": self.pid, "since": self.since}
        return {f"{RUN_DOMAIN}{self.run}": json.dumps(who, separators=(",", ":"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRepair:
    """A repair that was decided and marked: the log goes back to `to`, and `epoch` begins there.

    Once the log is in that epoch, the rows are out, and other tables have yet to follow. `found` is the incident that
    it repairs. If damage of the replica itself is taken out, the position stays and no epoch begins; `others` is what
    was taken out of other logs, which had rows in the same damaged files.
    """

    to: Offset
    epoch: int
    found: Incident | None = None
    others: tuple[TakenOut, ...] = ()

    @property
    def goes_back(self) -> bool:
        return self.found is None or self.found.condition is not Condition.REPLICA_DAMAGED

    @property
    def out(self) -> OffsetRange:
        """The range to take out if the log goes back: also rows below `to`, if nothing proves that they are its own."""
        return OffsetRange(self.to if self.found is None else min(self.found.start, self.to), END)


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """The state of one log in its table; see the module's docstring.

    `is_in_one_piece` says that it was read from the form of older versions.
    """

    writer: Writer
    commit: str
    epoch: int = 0
    offset: Offset | None = None
    first: Offset | None = None
    link: Link | None = None
    identity: str | None = None
    mark: int | None = None
    epochs: Epochs = ()
    ledger: tuple[LedgerRow, ...] = ()
    incidents: tuple[Incident, ...] = ()
    quarantined: tuple[DataFile, ...] = ()
    branched_at: Offset | None = None
    repair: PendingRepair | None = None
    is_in_one_piece: bool = field(default=False, compare=False)

    def domains(self, log_id: LogId, before: LogState | None) -> dict[str, str]:
        """The metadata to write over the state `before`, which is None, or a fresh state, if the table has none.

        By domain, as JSON.
        """
        found = {f"{DOMAIN}{log_id}": _MOVING.text_of(_part(_Moving, self, run=self.writer.run))}
        is_there = before is not None and bool(before.commit) and not before.is_in_one_piece
        if _STANDS(self) != _STANDS(before if is_there else _Standing()):
            found[f"{STANDING_DOMAIN}{log_id}"] = _STANDING.text_of(_part(_Standing, self))
        if before is None or not is_there or before.writer != self.writer:
            found |= self.writer.domain()
        return found

    @classmethod
    def of_domains(cls, log_id: LogId, text_of: Callable[[str], str | None]) -> LogState | None:
        """The inverse of `domains`, given the text of each domain; None if they have no state of the log.

        Raises KeyError, TypeError or ValueError for what no version wrote.
        """
        text = text_of(f"{DOMAIN}{log_id}")
        if text is None:
            return None
        values = json.loads(text)
        if "run" not in values:
            return replace(_IN_ONE_PIECE.of(values), is_in_one_piece=True)
        moving = _MOVING.of(values)
        standing = _Standing() if (rest := text_of(f"{STANDING_DOMAIN}{log_id}")) is None else _STANDING.read(rest)
        run = text_of(f"{RUN_DOMAIN}{moving.run}")
        if run is None:
            raise ValueError(f"nothing says who the run {moving.run} is")
        parts = (moving, standing)
        named = {one.name: getattr(part, one.name) for part in parts for one in fields(part) if one.name != "run"}
        return cls(writer=Writer(run=moving.run, **json.loads(run)), **named)

    @classmethod
    def fresh(cls, writer: Writer) -> LogState:
        """The state of a log that nobody has begun to replicate."""
        return cls(writer=writer, commit="")

    @property
    def known(self) -> Known:
        """What the log's master is compared with."""
        return Known(self.identity, self.offset, self.mark, self.epochs)

    @property
    def newest_stored_us(self) -> int | None:
        """When the master stored the newest message of the last commit, by the master's clock: µs since 1970, UTC.

        The record at `offset` was not stored before that. None if that commit has no message.
        """
        stored = (row.last_store_timestamp for row in self.ledger)
        return max((at_us for at_us in stored if at_us is not None), default=None)

    def claimed_by(self, writer: Writer) -> LogState:
        return replace(self, writer=writer, commit=new_id())

    def moved_to(
        self,
        end: Offset,
        *,
        first: Offset,
        ledger: Sequence[LedgerRow],
        link: Link | None = None,
        mark: int | None = None,
        epochs: Epochs | None = None,
        incidents: Sequence[Incident] = (),
        quarantined: Sequence[DataFile] = (),
    ) -> LogState:
        """The state after a commit up to `end`. `first` is used only if the replica begins; None keeps the `epochs`."""
        return replace(
            self,
            offset=end,
            first=first if self.first is None else self.first,
            ledger=tuple(ledger),
            link=link,
            mark=mark,
            epochs=self.epochs if epochs is None else epochs,
            incidents=tuple(incidents),
            quarantined=tuple(quarantined),
            commit=new_id(),
        )


def new_id() -> str:
    """Return an id for a commit or a run: 64 random bits, so that no two that may meet are alike."""
    return os.urandom(8).hex()


_Rows = Annotated[
    tuple[LedgerRow, ...],
    PlainSerializer(lambda rows: [values_of(row) for row in rows]),
    BeforeValidator(lambda rows: [from_values(row) for row in rows]),
]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True, kw_only=True)
class _Moving:
    run: str
    commit: str
    offset: Offset | None = None
    link: Link | None = None
    mark: int | None = None
    ledger: _Rows = ()
    incidents: tuple[Incident, ...] = ()
    quarantined: tuple[DataFile, ...] = ()


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    epoch: int = 0
    first: Offset | None = None
    identity: str | None = None
    epochs: Epochs = ()
    branched_at: Offset | None = None
    repair: PendingRepair | None = None


def run_of(moving: str) -> str | None:
    """The run that a log's metadata names; None in the form of older versions, which has the writer itself."""
    run = json.loads(moving).get("run")
    return None if run is None else str(run)


def _part(kind: type[_T], of: Any, **more: Any) -> _T:
    """The `kind` whose fields are those of the same names of `of`, besides `more`."""
    names = _names(kind)  # type: ignore[arg-type] # a class can be hashed
    return kind(**{name: getattr(of, name) for name in names if name not in more}, **more)


@cache
def _names(kind: Any) -> list[str]:
    return [one.name for one in fields(kind)]


_STANDS: Final = attrgetter(*_names(_Standing))
_MOVING: Final = StoredJson(_Moving)
_STANDING: Final = StoredJson(_Standing)
_IN_ONE_PIECE: Final = StoredJson(LogState, always=("ledger",))  # whose rows have their values by key
