"""The contract of a master: the bounds of its logs, how each is read, and how it hears what is durable.

A `Master` is what the configuration names: a RocketMQ broker or a dister leader, which has one log, or a Kafka topic,
whose partitions are its logs. A `MasterLog` is one of its logs. Both are small picklable values. The driver polls
the master for bounds, and plans; a log travels to the tasks, where it opens files or sockets to read. Neither keeps a
connection between calls. What must stay open as long as the job runs, the acknowledging side of a replication protocol,
is a `Session`, which only the driver has.

What never changes for a kind of master, read in one way, is one value, its `Traits`. The answers of a log with nothing
special about it, and of a master with one log, are in `sources/sole_log.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sources.bounds import MasterRetention
from sources.epochs import Epoch, Epochs, Parting
from sources.errors import LogtwinError
from sources.offsets import LogId, Offset, OffsetRange, packed
from sources.records import KeyedState
from sources.steps import Steps

if TYPE_CHECKING:
    from sources.metadata import FetchedMetadata
    from sources.reading import LogReader


@packed
@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """One task reads the records of `log_id` that start in `owned`, a part of `batch`."""

    log_id: str
    batch: OffsetRange
    owned: OffsetRange


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """Because of `error`, nothing of `log_id` can be planned until somebody handles it."""

    log_id: str
    error: LogtwinError


Planned = PlannedSplit | PlanFailed


@packed
@dataclass(frozen=True, slots=True)
class Known:
    """What a replica knows of the log it follows, so that the master can be checked (`MasterLog.continuing`).

    `identity` tells apart the logs that have had the same name; `mark` says which of the master's histories the records
    before `offset` belong to. For Kafka these are the topic's id and a leader epoch. Both are None if the master has no
    such thing. `epochs` are those below `offset`, if the master is elected by its group.
    """

    identity: str | None = None
    offset: Offset | None = None
    mark: int | None = None
    epochs: Epochs = ()


NOTHING_KNOWN: Final = Known()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive whole records, decoded.

    `records` has the master's schema (RECORD_SCHEMA, or KAFKA_SCHEMA for Kafka), one row per record, in log order.
    `raw` holds the master's own bytes of exactly `covered`, as long as `MasterLog.lengths` of the records. It may be a
    view of a reused buffer, so it is valid only until the next chunk is requested. `mark` is that of `Known`, for the
    records before the end of `covered`; `epochs` are all that the master lists below that end.
    """

    covered: OffsetRange
    records: pa.RecordBatch
    raw: memoryview
    mark: int | None = None
    epochs: Epochs = ()


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of the log, between sound records, that holds no sound record; `error` says what is wrong at its start.

    `raw` holds the master's own bytes of exactly `covered`, valid as long as a chunk's; None if the master has none
    there.
    """

    covered: OffsetRange
    raw: memoryview | None
    error: LogtwinError


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed position of a log, and the `mark` (`Known`) of the records before it, if there is one."""

    offset: Offset
    mark: int | None = None


@dataclass(frozen=True, slots=True)
class SessionState:
    """The state of a session. `acknowledged` is what it has sent, not what it still is to send, summed over its logs;
    `connected_since` is None without a connection; `last_error` is None once the master has answered over one again.

    A connection that only gives way to the tasks that read (`Session.reading`) counts as connected all the time.
    """

    acknowledged: Offset | None
    connected_since: datetime | None
    reconnects: int
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterView:
    """A master's own answers about itself, at one moment.

    `role` is its own word for what it is (RocketMQ: ASYNC_MASTER, SYNC_MASTER, SLAVE); None for files. So are `name`
    and `version`. For an elected master, `epoch` is the number of its election, and no fail-over takes back anything
    below `confirmed`.
    """

    role: str | None
    bounds: OffsetRange
    retention: MasterRetention | None
    epoch: Epoch | None = None
    confirmed: Offset | None = None
    name: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class LogQuery:
    """One log in a poll: the replica's `identity` (`Known`) and `position`, and `seen_end`, the log end at an earlier
    poll. Each is None if unknown."""

    identity: str | None = None
    position: Offset | None = None
    seen_end: Offset | None = None


EMPTY_QUERY: Final = LogQuery()


@dataclass(frozen=True, slots=True)
class Holding:
    """The bounds of a log, and which of the logs that have had its name it is (`Known.identity`)."""

    bounds: OffsetRange
    identity: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What is constant for a kind of master, read in one way.

    ``restored_from``      the columns that `MasterLog.restore` needs, the offset among them, and the size if it counts
    ``measured_by``        the columns that `MasterLog.lengths` needs
    ``has_free_offsets``   offsets may have no record. Then records need not join, no record reaches past an end, and
                           the answer to what was asked proves a range: chunks may have no records and still join
    ``cuts_at_records``    `boundary_after` finds boundaries: files can be read at any offset, a stream cannot
    ``cuts_batches``       `plan` cuts by `split_bytes`; otherwise a batch is one piece, however long
    ``gains_logs``         logs are added to it while it is followed. Each has a position from the first poll on, so
                           that a crash cannot change where it starts. Otherwise its only log has the master's id
    ``compares_history``   it compares itself what a replica knows with what it has (`Master.check_history`); otherwise
                           the replica compares the bytes of its last record
    ``proves_all``         everything replicated, not only the last record, is compared with the master before it is
                           followed: another master may have the same last record after a different history
    ``overrules``          its log replaces what was replicated, without anybody being asked: a job that finds that the
                           two differ takes the replica back by itself, unless the master is empty
    ``keyed_state``        how the records make a map of keys and values, which the replica also keeps; None for none
    """

    restored_from: tuple[str, ...]
    measured_by: tuple[str, ...]
    has_free_offsets: bool = False
    cuts_at_records: bool = False
    cuts_batches: bool = False
    gains_logs: bool = False
    compares_history: bool = False
    proves_all: bool = False
    overrules: bool = False
    keyed_state: KeyedState | None = None


class TimeIsUp(Exception):
    """A reader in a hurry (`MasterLog.hurried`) waits no longer, and takes what has come."""


class Session(Protocol):
    """The acknowledging side of the replication protocol for all logs of a master, open as long as the job runs."""

    @property
    def acknowledged(self) -> Mapping[LogId, Offset]:
        """The last offset of each log that this session has sent to the master; a consumer group has confirmed it.

        It may be below what `acknowledge` was given last: then the master does not answer, or is not proven.
        """

    @property
    def state(self) -> SessionState:
        """The current state of the session."""

    @property
    def failure(self) -> LogtwinError | None:
        """An error that no retry can help: it is another master, or somebody else acknowledges in our name."""

    def reading(self) -> AbstractContextManager[None]:
        """Enter this around every other read of this process: the tasks of a batch, the proof before a start.

        The master is asked whether it counts connections instead of replicas; not again, if it has said no and nothing
        has failed since, because those who read ask it, too (`reader_of`). If it does, and more than one could matter,
        the session ends its own connection first and reconnects afterwards: two of our connections never vouch for the
        same bytes at the same time. After tasks have failed, their connections may linger; entering then waits until
        the master must have noticed.

        Raises MasterUnreachable, MasterSilent, ProtocolViolation, MasterError.
        """

    def reader_of(self, log: MasterLog) -> MasterLog:
        """Return `log`, one of its own, to be read now; reading fails if the master has come to count connections."""

    def acknowledge(self, positions: Mapping[LogId, Committed]) -> None:
        """Promise the master that everything below `positions` is durable here. Other logs keep their last position.

        The caller has committed it. Never blocks the job if the master is away: the newest promise is repeated until it
        gets through. Raises nothing for an unreachable master.
        """

    def close(self) -> None:
        """Try for a moment to get the newest promise through, and free the session's resources. Idempotent."""


@runtime_checkable
class AskedInSteps(Protocol):
    """A master of a kind of which one thread can poll many at once."""

    def poll_in_steps(self, asked: Mapping[LogId, LogQuery]) -> Steps[Mapping[LogId, Holding] | None] | None:
        """Return `Master.poll` in steps; None if it would have to wait for something else, such as a new connection.

        The steps return None if one request is not enough. Then call `poll`, in a thread of its own.
        """


class Master(Protocol):
    """A master as the configuration names it. Picklable; each call opens what it needs and closes it."""

    @property
    def id(self) -> LogId:
        """What the configuration calls it: the id of its log, or of the topic whose partitions are its logs."""

    @property
    def traits(self) -> Traits: ...

    @property
    def address(self) -> str:
        """Where it is: its address, or a directory."""

    @property
    def role(self) -> str:
        """What this replica is to it: "slave", which it counts on; "consumer"; "reader", of which it knows nothing."""

    def check(self, *, is_replica: bool = True) -> None:
        """Make sure, once at the start of a job, that this master may be replicated in the requested way.

        Without `is_replica`, the caller follows its logs but neither keeps nor acknowledges them, so no master may take
        it for a replica. Raises ConfigurationError if it may not; MasterUnreachable, MasterSilent.
        """

    def counted_for_s(self) -> float | None:
        """For how long after it last heard of a connection the master counts it; None if the number does not matter.

        It matters if the master may take two connections of one replica for two replicas.
        Raises MasterUnreachable, MasterSilent.
        """

    def is_waited_for(self) -> bool:
        """Whether producers wait, as far as the master says, until this replica has what they sent.

        Raises MasterUnreachable, MasterSilent, AccessDenied, ProtocolViolation, MasterError.
        """

    def poll(self, asked: Mapping[LogId, LogQuery]) -> Mapping[LogId, Holding | LogtwinError]:
        """Return the logs that it has now and the bounds of each, by one request; `asked` may name few or none.

        If only some of the logs fail, theirs are the errors that it returns. If `asked` names none, all logs begin
        together, so the request is repeated until each has its bounds.
        Raises Recreated if another log has the name of one in `asked`, and as `MasterLog.bounds` does.
        """

    def view(self) -> MasterView:
        """Ask the master about itself. This takes a few requests, so do it only now and then.

        Raises MasterUnreachable, MasterSilent, ProtocolViolation, LogError.
        """

    def log(self, log_id: LogId) -> MasterLog:
        """Return one of its logs by itself. Asks nobody."""

    def check_history(self, known: Mapping[LogId, Known]) -> Mapping[LogId, LogtwinError]:
        """Check that what lies before the offset of each in `known` is still its history, if it `compares_history`.

        Returns an error for each of which that is not so (BelowMinimum, AboveMaximum, Rewritten), or cannot be said.
        Raises as `poll` does.
        """

    def open_session(self, prove: Callable[[], None] | None = None) -> Session:
        """Return a session to acknowledge through. It connects in the background, at the first acknowledgement.

        If a connection may lead to another master, `prove` is called from any thread, in the session's own turn
        (`Session.reading`), before the first promise of each. It raises LogtwinError if the master is not the one that
        the promise is for; then nothing is promised and the session tries again.
        """

    def acknowledged_by_master(self) -> Mapping[LogId, Offset]:
        """Return the offset that the master itself counts as acknowledged now, for each log of which it can tell.

        Raises MasterUnreachable, MasterSilent.
        """

    def metadata(self) -> Iterator[FetchedMetadata]:
        """Yield the master's metadata, kind by kind; each is requested when its turn comes.

        If a kind fails, its result holds the error. Yields nothing if there is nobody to ask.
        """


class MasterLog(Protocol):
    """One log of a master, by itself. Picklable; each call opens what it needs and closes it."""

    @property
    def log_id(self) -> LogId: ...

    @property
    def traits(self) -> Traits: ...

    @property
    def address(self) -> str:
        """Where the log is read from: the address of its master, or a directory."""

    def check(self, *, is_replica: bool = True) -> None:
        """Check its master (`Master.check`)."""

    def counted_for_s(self) -> float | None:
        """Return `Master.counted_for_s` of its master."""

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        """Return what the master holds now, from its oldest record to the end of its newest: two record boundaries.

        `known`, an earlier maximum, spares a log of files from being searched again below it. The end is below
        `known` only if the log has no record there any more; without `known`, also if the end is in doubt.
        Raises MasterUnreachable, MasterSilent, LogError.
        """

    def size_bytes(self, wanted: OffsetRange) -> int | None:
        """Return about how many bytes of the master's log `wanted` takes; None if unknown. Asks nobody."""

    def boundary_after(self, offset: Offset, maximum: Offset) -> Offset:
        """Return the first record boundary at or after `offset`, at most `maximum`; `offset` unless `cuts_at_records`.

        Planners cut there, so no reader has to search for its first record, and none can skip one unnoticed.
        """

    def end_of_batch(self, start: Offset, maximum: Offset, max_bytes: int) -> Offset:
        """Return the end, up to `maximum`, of a batch that begins at `start` and takes about `max_bytes` of the log.

        It lies past `start` if `maximum` does. Raises as `boundary_after` does.
        """

    @property
    def split_bytes(self) -> int:
        """How many bytes of the log are worth a task."""

    def plan(self, wanted: OffsetRange, *, cores: int = 1) -> tuple[OffsetRange, ...]:
        """Cut `wanted` by `boundary_after` into consecutive pieces that tasks may read side by side on `cores`."""

    @property
    def known(self) -> Known:
        """What the replica knows of it (`continuing`)."""

    @property
    def reader(self) -> LogReader:
        """The reader of its splits; it reads splits of all logs with an equal reader together."""

    @property
    def small_reader(self) -> LogReader:
        """The reader of its splits of at most SMALL_BYTES (`sources.reading`)."""

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk | Damage]:
        """Yield the records that start in `owned`, checked, in order, in chunks of bounded size.

        With `boundary`, the first record must start at `owned.start`. Without it, both edges may lie inside records:
        reading begins at the first record at or after the start, and it is proven that the reader of the following
        range will begin where this one ended. The chunks join. Unless `owned` is empty, the last chunk ends at or after
        `owned.end`, because the last record may reach past it, but never past the master's newest record. `committed`
        is the position up to which the reader has committed, or None for nothing: a master that takes a request for an
        acknowledgement is never asked for anything above it.

        If the log was opened with ``on_loss = "record"``, anything that is not a sound record comes as `Damage`, joined
        to the chunks around it, and reading goes on at the next sound record; otherwise the error is raised. Damage
        ends where the next sound record begins, and with `Traits.cuts_at_records` at ``owned.end`` at the latest; a
        large one comes in pieces.

        Raises OffsetOutOfRange, CorruptRecord, SegmentError, MasterUnreachable, MasterSilent, ProtocolViolation,
        ConfigurationError (the read would promise what is not committed).
        """

    def identity(self) -> str | None:
        """Ask which of the logs that have had this name it is now (`Known`), if it can tell. Raises as `bounds`."""

    def continuing(self, known: Known) -> MasterLog:
        """Return the same log for a replica that holds `known` of it.

        Reading from `known.offset` on then notices, if the master can tell, that it has another log under the same name
        or another history before that offset.
        """

    def parting(self) -> Parting | None:
        """Ask where the history of an elected master leaves that of the log which this one is `continuing`.

        None if it does not, and, without asking, if the master is not elected. Raises as `bounds`.
        """

    def hurried(self, patience_s: float) -> MasterLog:
        """Return the same log, whose `read` waits for its master no longer than `patience_s` after it has begun.

        After that it raises TimeIsUp behind the last whole record that has come. A read that ends without it has read
        all there is. Files never make a reader wait, so they are read as usual.
        """

    def raw(self, wanted: OffsetRange, *, committed: Offset | None) -> Generator[memoryview]:
        """Yield the master's own bytes of exactly `wanted`, unchecked; each piece is valid until the next is requested.

        They are for comparison, so the edges need not be record boundaries. `committed` is as in `read`; `wanted` lies
        below it. Closing the generator early closes what it has opened.
        Raises OffsetOutOfRange, SegmentError, MasterUnreachable, MasterSilent, ProtocolViolation.
        """

    def drops_records(self) -> bool:
        """Ask whether the master removes records from the middle of its log and leaves their offsets without one.

        If so, what it has left of a range is compared record by record. Only a log with free offsets does this. Raises
        ConfigurationError (not allowed to ask), MasterUnreachable, MasterSilent, MasterError.
        """

    def restore(self, records: pa.RecordBatch) -> bytes:
        """Return the master's own bytes of `records`, one after the other: the inverse of `read`.

        Raises CorruptRecord for a row that `read` cannot have made.
        """

    def lengths(self, records: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Return how many bytes of `raw`, `read` and `restore` each of `records` takes; 0 if unknown."""

    def common_offset(self, records: Iterable[tuple[OffsetRange, bytes]]) -> Offset | None:
        """Find how far a replica that holds `records` shares the master's history, by the master's own rule.

        `records` are all of the replica's, in order: the range and the master's bytes of each. The answer is the end of
        one of them, or 0 if they differ from the first one on. A master without such a rule returns None and takes no
        record; the checksums of the ledger are compared then. Raises as `read` does.
        """


class SoleMaster(Master, MasterLog, Protocol):
    """A master with one log, which is that log, too (`sources.sole_log.SoleLog`)."""
