"""The answers of most logs and masters: nobody waits for them, and there is nothing special about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, Self

from sources.epochs import Parting
from sources.errors import LogtwinError
from sources.master import (
    EMPTY_QUERY,
    NOTHING_KNOWN,
    Committed,
    Holding,
    Known,
    LogQuery,
    MasterLog,
    Session,
    SessionState,
)
from sources.metadata import FetchedMetadata
from sources.offsets import LogId, Offset, OffsetRange
from sources.reading import LogReader, OneByOne


class PlainLog:
    """Answers of `sources.master.MasterLog`: of a log without identity, epochs and rules of its own, that never makes a
    reader wait."""

    __slots__ = ()

    @property
    def known(self) -> Known:
        """Nothing: its past is compared by its bytes."""
        return NOTHING_KNOWN

    @property
    def reader(self: MasterLog) -> LogReader:
        return OneByOne(self)

    @property
    def small_reader(self: MasterLog) -> LogReader:
        return self.reader

    def counted_for_s(self) -> float | None:
        """Return None: nobody counts connections."""

    def identity(self) -> str | None:
        """Return None: a name identifies nothing else."""

    def continuing(self, known: Known) -> Self:
        """Return the same log: its past is compared by its bytes."""
        return self

    def hurried(self, patience_s: float) -> Self:
        """Return the same log: there is nothing to wait for."""
        return self

    def parting(self) -> Parting | None:
        """Return None: its masters are not elected."""

    def drops_records(self) -> bool:
        """Return False: what is in the log stays there."""
        return False

    def common_offset(self, records: Iterable[tuple[OffsetRange, bytes]]) -> Offset | None:
        """Return None: the checksums of the ledger are compared."""


class _Log(Protocol):
    """The parts of itself that `SoleLog` relies on."""

    @property
    def log_id(self) -> LogId: ...

    def bounds(self, known: Offset | None = None) -> OffsetRange: ...


class SoleLog(PlainLog):
    """The log of a master that has no other, which is that master, too: answers of `sources.master.Master`.

    Unless it says otherwise, it is read from files, whose readers nobody knows of.
    """

    __slots__ = ()

    @property
    def id(self: _Log) -> LogId:
        return self.log_id

    @property
    def role(self) -> str:
        return "reader"

    def log(self, log_id: LogId) -> Self:
        return self

    def is_waited_for(self) -> bool:
        """Return False: nobody waits for the readers of files."""
        return False

    def poll(self: _Log, asked: Mapping[LogId, LogQuery]) -> Mapping[LogId, Holding]:
        """Implement the contract. If the end is in doubt and lies below the position, it is looked at once more."""
        one = asked.get(self.log_id, EMPTY_QUERY)
        bounds = self.bounds(one.seen_end)
        if one.position is not None and bounds.end < one.position:
            bounds = self.bounds(one.position)
        return {self.log_id: Holding(bounds)}

    def check_history(self, known: Mapping[LogId, Known]) -> Mapping[LogId, LogtwinError]:
        """Return nothing: the replica compares bytes."""
        return {}

    def open_session(self, prove: Callable[[], None] | None = None) -> Session:
        return SilentSession()

    def acknowledged_by_master(self) -> Mapping[LogId, Offset]:
        """Return nothing: nobody counts."""
        return {}

    def metadata(self) -> Iterator[FetchedMetadata]:
        return iter(())


class SilentSession:
    """A `sources.master.Session` with nobody at the other end: of files, and of a topic without a consumer group."""

    failure = None

    @property
    def acknowledged(self) -> Mapping[LogId, Offset]:
        return {}

    @property
    def state(self) -> SessionState:
        return SessionState(None, None, 0, None)

    def reading(self) -> AbstractContextManager[None]:
        return nullcontext()

    def reader_of(self, log: MasterLog) -> MasterLog:
        return log

    def acknowledge(self, positions: Mapping[LogId, Committed]) -> None:
        """Do nothing: nobody listens."""

    def close(self) -> None:
        """Do nothing: nothing is open."""
