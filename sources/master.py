"""The contract of a master log (bounds, plan, read, acknowledge) and the schema of the records it yields.

A small picklable value (`MasterLog`) describes a master. The driver asks it for bounds and plans; the value then
travels to the tasks, where it opens files or sockets to read. It keeps no connection between calls. Whatever must stay
open as long as the job runs (the acknowledging side of a replication protocol) is a `Session`, which only the driver
has.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sources.epochs import Epoch, Epochs, Parting
from sources.errors import LogtwinError
from sources.keyed_state import KeyedState
from sources.offsets import LogId, Offset, OffsetRange
from sources.retention import MasterRetention

if TYPE_CHECKING:
    from sources.metadata import FetchedMetadata
    from sources.reading import LogReader

TIMESTAMP = pa.timestamp("us", tz="UTC")
MESSAGE = "message"
BLANK = "blank"


def _field(name: str, kind: pa.DataType, comment: str) -> pa.Field:
    return pa.field(name, kind, metadata={"comment": comment})


RECORD_SCHEMA = pa.schema(
    [
        _field(
            "offset", pa.int64(), "where the record begins: RocketMQ the byte, dister the entry id before it plus 1"
        ),
        _field("size", pa.int64(), "offset + size is where the next record begins; RocketMQ: the bytes it takes"),
        _field("kind", pa.string(), "message, or blank: the filler that ends a segment file"),
        _field("topic", pa.string(), "topic as stored; delayed and half messages wait in system topics"),
        _field("queue_id", pa.int32(), "queue of the topic"),
        _field("queue_offset", pa.int64(), "index in the consume queue of (topic, queue_id)"),
        _field("tags", pa.string(), "property TAGS; null without one"),
        _field("keys", pa.list_(pa.string()), "property KEYS, split at spaces; null without one"),
        _field("unique_key", pa.string(), "property UNIQ_KEY, the client's message id; retries reuse it"),
        _field(
            "store_timestamp", TIMESTAMP, "when the master stored it, by its clock; null outside the years 1 to 9999"
        ),
        _field(
            "born_timestamp", TIMESTAMP, "when the producer made it, by its clock; null outside the years 1 to 9999"
        ),
        _field("body", pa.binary(), "body, decompressed; null of a blank, and where it cannot be decompressed"),
        _field("properties", pa.map_(pa.string(), pa.string()), "properties as a RocketMQ consumer sees them"),
        _field("magic", pa.int32(), "record form: V1 -626843481, V2 -626843477, blank -875286124"),
        _field("body_crc", pa.int32(), "CRC-32 of the stored body with the top bit cleared; verified"),
        _field("flag", pa.int32(), "the producer's own flag"),
        _field("sys_flag", pa.int32(), "bits: 1 compressed, 12 transaction, 16/32 IPv6 hosts, 128 inner batch, …"),
        _field("born_host", pa.string(), "producer's address, ip:port"),
        _field("store_host", pa.string(), "address of the broker that wrote it, ip:port"),
        _field("reconsume_times", pa.int32(), "how often it was redelivered"),
        _field("prepared_transaction_offset", pa.int64(), "of a committed transaction: offset of its half message"),
        _field("tags_code", pa.int64(), "hash of the tags as in the consume queue; parked delay: delivery time, ms"),
        _field("stored_properties", pa.binary(), "the properties block as stored, byte for byte"),
        _field(
            "stored_body",
            pa.binary(),
            "the body as stored, if body differs; a blank's bytes; all of a record with a null time",
        ),
    ]
)
"""Columns of one record of any master, in table order. This is the only definition; tables and data source use it."""


RANGES_SCHEMA = pa.schema(
    [
        _field("log_id", pa.string(), "which log"),
        _field("batch_start", pa.int64(), "the batch that the split belongs to, half-open"),
        _field("batch_end", pa.int64(), "its end"),
        _field("split_start", pa.int64(), "the split: one task reads the records that start in it"),
        _field("split_end", pa.int64(), "its end"),
        _field("error", pa.string(), "null of a split; else why the log has none: `LogtwinError.token`, and no ranges"),
    ]
)
"""What to read, one row per split, and what kept a log from being planned: the rows of a batch of many logs."""


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """A row of RANGES_SCHEMA: one task reads the records of `log_id` that start in `owned`, a part of `batch`."""

    log_id: str
    batch: OffsetRange
    owned: OffsetRange

    def as_row(self) -> tuple[str | int | None, ...]:
        """Return the values in the schema's order."""
        return (self.log_id, self.batch.start, self.batch.end, self.owned.start, self.owned.end, None)


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """A row of RANGES_SCHEMA: because of `error`, nothing of `log_id` can be planned until somebody handles it."""

    log_id: str
    error: LogtwinError

    def as_row(self) -> tuple[str | int | None, ...]:
        """Return the values in the schema's order."""
        return (self.log_id, None, None, None, None, self.error.token())


Planned = PlannedSplit | PlanFailed


def as_batch(planned: Iterable[Planned]) -> pa.RecordBatch:
    """Return `planned` as rows of RANGES_SCHEMA, in order; there may be none."""
    columns = list(zip(*(one.as_row() for one in planned), strict=True)) or [()] * len(RANGES_SCHEMA)
    return pa.record_batch([list(column) for column in columns], schema=RANGES_SCHEMA)


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
class SessionState:
    """The state of a session. `acknowledged` is what it has sent, not what it still is to send; `connected_since` is
    None without a connection; `last_error` stays after a recovery.

    A connection that only gives way to the tasks that read (`Session.reading`) counts as connected all the time.
    """

    acknowledged: Offset | None
    connected_since: datetime | None
    reconnects: int
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterView:
    """What a master says about itself, asked once.

    `role` is its own word for what it is (RocketMQ: ASYNC_MASTER, SYNC_MASTER, SLAVE); None for files. For an elected
    master, `epoch` is the number of its election, and no fail-over takes back anything below `confirmed`.
    """

    role: str | None
    bounds: OffsetRange
    retention: MasterRetention | None
    epoch: Epoch | None = None
    confirmed: Offset | None = None


class TimeIsUp(Exception):
    """Raised to a reader in a hurry (`MasterLog.hurried`): it waits for nothing beyond what has come."""


class Session(Protocol):
    """The acknowledging side of the replication protocol, open as long as the job runs."""

    @property
    def acknowledged(self) -> Offset | None:
        """The last offset that this session has sent to the master; None before the first.

        It may be below what `acknowledge` was given last: then the master does not answer, or is not proven.
        """

    @property
    def state(self) -> SessionState:
        """The current state of the session."""

    def reading(self) -> AbstractContextManager[None]:
        """Enter this around every other read of this process: the tasks of a batch, the proof before a start.

        If the master counts connections instead of replicas, and more than one could matter, the session ends its own
        connection first and reconnects afterwards: two of our connections never vouch for the same bytes at the same
        time. After tasks have failed, their connections may linger; entering then waits until the master must have
        noticed.

        Raises MasterUnreachable, MasterSilent, ProtocolViolation, MasterError.
        """

    def acknowledge(self, committed: Offset, mark: int | None = None) -> None:
        """Promise the master that everything below `committed`, which has `mark` (`Known`), is durable here.

        The caller has committed it. Never blocks the job if the master is away: the promise is repeated until it
        gets through. Raises nothing for an unreachable master.
        """

    def close(self) -> None:
        """End the session and free its resources. Idempotent."""


class MasterLog(Protocol):
    """One log of one master. Picklable; each call opens what it needs and closes it."""

    @property
    def log_id(self) -> LogId: ...

    def check(self, *, is_replica: bool = True) -> None:
        """Make sure, once at the start of a job, that this master may be replicated in the requested way.

        Without `is_replica`, the caller follows the log but neither keeps nor acknowledges it, so no master may take it
        for a replica. Raises ConfigurationError if something stands against it; MasterUnreachable, MasterSilent.
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

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        """Return what the master holds now, from its oldest record to the end of its newest: two record boundaries.

        `known`, an earlier maximum, spares a log of files from being searched again below it. The end may lie below it
        only if what stands there is no record of the log any more; without it, also if there is a doubt.
        Raises MasterUnreachable, MasterSilent, LogError.
        """

    @property
    def place(self) -> str:
        """Where the log is read from: the address of its master, or a directory."""

    @property
    def role(self) -> str:
        """What this replica is to the master: "slave", which it counts on, or "reader", of which it knows nothing."""

    def look(self) -> MasterView:
        """Ask the master about itself. This takes a few requests, so do it only now and then.

        Raises MasterUnreachable, MasterSilent, ProtocolViolation, LogError.
        """

    @property
    def has_free_offsets(self) -> bool:
        """Whether offsets may have no record.

        Then records need not join, no record reaches past an end, and the master's answer to what it was asked proves a
        range: chunks may have no records and still join.
        """

    def size_bytes(self, wanted: OffsetRange) -> int | None:
        """About how many bytes of the master's log `wanted` takes, without asking; None if nobody knows."""

    @property
    def cuts_at_records(self) -> bool:
        """Whether `boundary_after` can find boundaries: files can be read at any place, a stream cannot."""

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

    @property
    def cuts_batches(self) -> bool:
        """Whether `plan` cuts by `split_bytes`. Otherwise a batch is one piece, however long."""

    def plan(self, wanted: OffsetRange, *, cores: int = 1) -> tuple[OffsetRange, ...]:
        """Cut `wanted` by `boundary_after` into consecutive pieces that tasks may read side by side on `cores`."""

    @property
    def known(self) -> Known:
        """What the replica knows of it (`continuing`)."""

    @property
    def reader(self) -> LogReader:
        """What reads splits of this log, together with those of all logs that have an equal one."""

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
        ends where the next sound record begins, and with `cuts_at_records` at ``owned.end`` at the latest; a large one
        comes in pieces.

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

    @property
    def restored_from(self) -> Sequence[str]:
        """The columns of RECORD_SCHEMA that `restore` needs, offset and size among them."""

    def restore(self, records: pa.RecordBatch) -> bytes:
        """Return the master's own bytes of `records`, one after the other: the inverse of `read`.

        Raises CorruptRecord for a row that `read` cannot have made.
        """

    @property
    def measured_by(self) -> Sequence[str]:
        """The columns of RECORD_SCHEMA that `lengths` needs."""

    def lengths(self, records: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """How many bytes of `raw`, `read` and `restore` each of `records` takes; 0 if nobody can say."""

    @property
    def proves_all(self) -> bool:
        """Whether everything replicated, not only the last record, is compared with the master before it is followed.

        This is needed if another master may have the same last record after a different history.
        """

    @property
    def overrules(self) -> bool:
        """Whether this master's log replaces what was replicated, without anybody being asked.

        If so, a job that finds that the two differ takes the replica back by itself, unless the master is empty.
        """

    def common_offset(self, records: Iterable[tuple[OffsetRange, bytes]]) -> Offset | None:
        """Find how far a replica that holds `records` shares the master's history, by the master's own rule.

        `records` are all of the replica's, in order: the range and the master's bytes of each. The answer is the end of
        one of them, or 0 if they differ from the first one on. A master without such a rule returns None and takes no
        record; the checksums of the ledger are compared then. Raises as `read` does.
        """

    @property
    def keyed_state(self) -> KeyedState | None:
        """How the records make a map of keys and values, which the replica also keeps; None for a log without one."""

    def metadata(self) -> Iterator[FetchedMetadata]:
        """Yield what the master knows besides its log, kind by kind, asking as the results are taken.

        If a kind fails, its result holds the error. Yields nothing if there is nobody to ask.
        """

    def open_session(self, prove: Callable[[], None] | None = None) -> Session:
        """Return a session to acknowledge through. It connects in the background, at the first acknowledgement.

        `prove` is called from any thread, in the session's own turn (`Session.reading`), before the first promise of
        each connection. It raises LogtwinError if the master is not the one that the promise is for; then nothing is
        promised and the session tries again.
        """

    def acknowledged_by_master(self) -> Offset | None:
        """What the master itself counts as acknowledged by a slave that is connected now; None if it cannot say.

        Raises MasterUnreachable, MasterSilent.
        """
