"""What the log table says of one log: where it stands, who writes it, what its newest commit owes to other tables.

JSON in the domain metadata ``logtwin.<log id>``, rewritten by every commit of that log (`sinks/state/position.py`):

    epoch, offset   the position; `offset` equals the transaction version of `Position.app_id`, written in the same
                    commit. null before the first data
    first           where the replica begins
    writer          the run that owns the log: run id, host, process, since when
    commit          a random id of the commit, by which its writer recognizes it
    link            the last record below the position, by its checksum
    identity, mark  what else its master is compared with (`sources.master.Known`): which log of that name this is, and
                    in which of the master's histories the position lies. null for most kinds
    epochs          for a group that elects its master: the epochs below the position (`sources/epochs.py`)
    ledger, incidents, quarantined
                    what the newest commit of data owes to other tables: rows, and files that are written
    branched_at     where this epoch's history left the one before
    repair          a repair that was begun: where it will go back to

Holes, the ranges below the position that the table lacks, have metadata of their own (`sinks/state/holes.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pydantic import ConfigDict, with_config

from sinks.batch.continuity import Link
from sinks.books.incident import Incident
from sinks.books.ledger_row import LedgerRow
from sinks.delta.data_file import DataFile
from sinks.state.holes import TakenOut
from sinks.state.stored_json import StoredJson
from sources.epochs import Epochs
from sources.loss import Condition
from sources.master import Known
from sources.offsets import END, Offset, OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The run of a job that writes a log."""

    run: str
    host: str
    pid: int
    since: str  # ISO 8601, UTC

    def __str__(self) -> str:
        return f"run {self.run} (process {self.pid} on {self.host}, since {self.since})"


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
    """What the table says of one log; see the module's docstring."""

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

    def as_json(self) -> str:
        return _STORED.text_of(self)

    @classmethod
    def from_json(cls, text: str) -> LogState:
        """The inverse of `as_json`. Raises TypeError or ValueError for what it did not write."""
        return _STORED.read(text)

    @classmethod
    def fresh(cls, writer: Writer) -> LogState:
        """The state of a log that nobody has begun to replicate."""
        return cls(writer=writer, commit="")

    @property
    def known(self) -> Known:
        """What the log's master has to agree with."""
        return Known(self.identity, self.offset, self.mark, self.epochs)

    @property
    def newest_stored_us(self) -> int | None:
        """When the master stored the newest message of the last commit, by the master's clock: µs since 1970, UTC.

        The record at `offset` was not stored before that. None if that commit has no message.
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
            commit=uuid.uuid4().hex,
        )


_STORED: Final = StoredJson(LogState, always=("ledger",))
