"""The contract of a master log: bounds, plan, read, acknowledge. And the shape of the records it yields.

A master is described by a small picklable value (`MasterLog`): the driver asks it for bounds and plans, the value
travels to the tasks, and there it opens files or sockets to read. It keeps no connection between calls. What has to
stay open as long as the job runs (the acknowledging side of a replication protocol) is a `Session`, driver only.
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
from sources.retention import Retention

if TYPE_CHECKING:
    from sources.metadata import Fetched

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
        _field("store_timestamp", TIMESTAMP, "when the master stored it, by the master's clock"),
        _field("born_timestamp", TIMESTAMP, "when the producer made it, by the producer's clock"),
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
        _field("stored_body", pa.binary(), "the body as stored, where it differs from body; of a blank, its bytes"),
    ]
)
"""Columns of one record of any master, in table order. The only definition: tables and data source build on it."""


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
"""What is to be read, one row a split, and what kept a log from it: the rows of a batch of many logs."""


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """A row of RANGES_SCHEMA: one task reads the records of `log_id` that start in `owned`, which is of `batch`."""

    log_id: str
    batch: OffsetRange
    owned: OffsetRange

    def as_row(self) -> tuple[str | int | None, ...]:
        """The values in the schema's order."""
        return (self.log_id, self.batch.start, self.batch.end, self.owned.start, self.owned.end, None)


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """A row of RANGES_SCHEMA: nothing can be planned of `log_id`, because of `error`, until somebody takes note."""

    log_id: str
    error: LogtwinError

    def as_row(self) -> tuple[str | int | None, ...]:
        """The values in the schema's order."""
        return (self.log_id, None, None, None, None, self.error.token())


Planned = PlannedSplit | PlanFailed


def as_batch(planned: Iterable[Planned]) -> pa.RecordBatch:
    """Rows of RANGES_SCHEMA, in order, also none."""
    columns = list(zip(*(one.as_row() for one in planned), strict=True)) or [()] * len(RANGES_SCHEMA)
    return pa.record_batch([list(column) for column in columns], schema=RANGES_SCHEMA)


@dataclass(frozen=True, slots=True)
class Known:
    """What a replica knows of the log it follows, for the master to be measured by (`MasterLog.continuing`).

    `identity` says which of all logs that have had its name; `mark` in which of the master's histories lies what comes
    before `offset`. Kafka: the topic's id, and a leader epoch. None where the master has no such thing. `epochs` are
    those of a group that elects its master, below `offset`.
    """

    identity: str | None = None
    offset: Offset | None = None
    mark: int | None = None
    epochs: Epochs = ()


NOTHING_KNOWN: Final = Known()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive whole records, decoded.

    `records` has the master's schema (RECORD_SCHEMA; of Kafka KAFKA_SCHEMA), one row a record, in log order. `raw` is
    the master's own bytes of exactly `covered`, as long as `MasterLog.lengths` of the records; it may be a view of a
    buffer that is reused, so it is good only until the next chunk is asked for. `mark` is that of `Known`, of what lies
    before the end of `covered`; `epochs` are all that the master lists below that end.
    """

    covered: OffsetRange
    records: pa.RecordBatch
    raw: memoryview
    mark: int | None = None
    epochs: Epochs = ()


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of the log between sound records that is none: `error` says what is wrong at ``covered.start``.

    `raw` is the master's own bytes of exactly `covered`, as good for long as a chunk's; None where it has none there.
    """

    covered: OffsetRange
    raw: memoryview | None
    error: LogtwinError


@dataclass(frozen=True, slots=True)
class SessionState:
    """How a session stands. `connected_since` is None without a connection; `last_error` stays after it healed.

    A connection that only makes way for the tasks that read (`Session.reading`) counts as connected all the time.
    """

    acknowledged: Offset | None
    connected_since: datetime | None
    reconnects: int
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterView:
    """What a master says of itself, asked once.

    `role` is its own word for what it is (RocketMQ: ASYNC_MASTER, SYNC_MASTER, SLAVE); None of files. Of an elected
    one `epoch` is the number of its election, and no fail-over takes back what lies below `confirmed`.
    """

    role: str | None
    bounds: OffsetRange
    retention: Retention | None
    epoch: Epoch | None = None
    confirmed: Offset | None = None


class TimeIsUp(Exception):
    """Of who reads in a hurry (`MasterLog.hurried`): what has come is all that is waited for."""


class Session(Protocol):
    """The acknowledging side of the replication protocol, open as long as the job runs."""

    @property
    def acknowledged(self) -> Offset | None:
        """The last offset that was promised to the master in this session."""

    @property
    def state(self) -> SessionState:
        """How it stands now."""

    def reading(self) -> AbstractContextManager[None]:
        """To be entered around whatever else of this process reads: the tasks of a batch, the proof before a start.

        Where the master counts connections instead of replicas, and more than one could matter, the session ends its
        own connection first and takes it up again afterwards: at no moment do two of ours vouch for the same bytes.
        After tasks that failed, whose connections may linger, entering waits until the master must have noticed.

        Raises MasterUnreachable, MasterSilent, ProtocolViolation, MasterError.
        """

    def acknowledge(self, committed: Offset, mark: int | None = None) -> None:
        """Promise the master that everything below `committed`, which has `mark` (`Known`), is durable here.

        The caller has committed it. Never blocks the job on a master that is away: the promise is repeated until it
        gets through. Raises nothing for an unreachable master.
        """

    def close(self) -> None:
        """End the session and free what it holds. Idempotent."""


class MasterLog(Protocol):
    """One log of one master. Picklable; opens what it needs in each call and closes it."""

    @property
    def log_id(self) -> LogId: ...

    def check(self, *, is_replica: bool = True) -> None:
        """Make sure, once at the start of a job, that this master may be replicated the way it is asked for.

        Not `is_replica` is who follows the log and neither keeps nor acknowledges it: to no master may it pass for one.
        Raises ConfigurationError saying what stands against it; MasterUnreachable, MasterSilent.
        """

    def counted_for_s(self) -> float | None:
        """Of a master that may take two connections of one replica for two: for how long after it has last heard of
        one it counts it. None where it does not matter how many there are.

        Raises MasterUnreachable, MasterSilent.
        """

    def is_waited_for(self) -> bool:
        """Whether producers wait, as far as the master says, until this replica has what they sent.

        Raises MasterUnreachable, MasterSilent, AccessDenied, ProtocolViolation, MasterError.
        """

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        """What the master holds now: from its oldest record to the end of its newest, both record boundaries.

        `known`, an earlier maximum, spares a master of files from looking at what it has seen before.
        Raises MasterUnreachable, MasterSilent, LogError.
        """

    @property
    def place(self) -> str:
        """Where the log is read: the address of its master, or a directory."""

    @property
    def role(self) -> str:
        """What this replica is to the master: "slave", which it counts on, or "reader", of which it knows nothing."""

    def look(self) -> MasterView:
        """What the master says of itself: a few requests, for every now and then.

        Raises MasterUnreachable, MasterSilent, ProtocolViolation, LogError.
        """

    @property
    def has_free_offsets(self) -> bool:
        """Whether offsets may have no record. Then records need not join, no record reaches past an end, and a range is
        proven by what the master was asked and has answered: chunks may have no records, and join all the same.
        """

    def size_bytes(self, wanted: OffsetRange) -> int | None:
        """About how many bytes of the master's log `wanted` takes, without asking; None where nobody knows."""

    @property
    def cuts_at_records(self) -> bool:
        """Whether `boundary_after` knows: files can be looked into anywhere, a stream cannot."""

    def boundary_after(self, offset: Offset, maximum: Offset) -> Offset:
        """The first record boundary at or after `offset`, at most `maximum`; `offset` itself unless `cuts_at_records`.

        Planners cut there, so that no reader has to search for its first record, and none can skip one unseen.
        """

    def end_of_batch(self, start: Offset, maximum: Offset, max_bytes: int) -> Offset:
        """Where a batch ends that begins at `start` and takes about `max_bytes` of the master's log; up to `maximum`.

        Past `start` wherever `maximum` is. Raises as `boundary_after` does.
        """

    @property
    def split_bytes(self) -> int:
        """How much of the log is worth a task."""

    @property
    def cuts_batches(self) -> bool:
        """Whether `plan` cuts by `split_bytes`. Otherwise a batch is one piece, however long."""

    def plan(self, wanted: OffsetRange, *, cores: int = 1) -> tuple[OffsetRange, ...]:
        """`wanted` as the consecutive pieces that tasks may read side by side on `cores`, cut by `boundary_after`."""

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk | Damage]:
        """The records that start in `owned`, checked, in order, in chunks of bounded size.

        With `boundary` the first record must start at `owned.start`. Without it both edges may lie inside records:
        reading begins at the first record at or after the start, and it is proven that a reader of the range that
        follows will begin where this one ended. The chunks join. Where `owned` is not empty the last one ends at or
        after `owned.end`, because the last record may reach past it; never past the master's newest record.
        `committed` is the position up to which the reader has committed, None for nothing: a master that takes a
        request for an acknowledgement is never asked for more.

        Of a log opened with ``on_loss = "record"`` what is no sound record comes as `Damage`, joined to the chunks
        around it, and reading goes on at the next sound record; otherwise it is raised. Damage ends where the next
        sound record begins, and with `cuts_at_records` at the latest at ``owned.end``; a large one comes in pieces.

        Raises OffsetOutOfRange, CorruptRecord, SegmentError, MasterUnreachable, MasterSilent, ProtocolViolation,
        ConfigurationError (the read would promise what is not committed).
        """

    def identity(self) -> str | None:
        """Which of all logs that have had its name it is now (`Known`); asks, where it can tell. Raises as `bounds`."""

    def continuing(self, known: Known) -> MasterLog:
        """The same log, for who holds `known` of it: a master that has another one by its name, or another history
        before `known.offset`, is noticed where it can tell, when it is read from there on.
        """

    def parting(self) -> Parting | None:
        """Where the history of an elected master leaves that of the log which this one is `continuing`; asks it.

        None where it does not; and of a master that is not elected, without asking. Raises as `bounds`.
        """

    def hurried(self, patience_s: float) -> MasterLog:
        """The same log, but `read` waits for its master no longer than `patience_s` after it has begun.

        Then it raises TimeIsUp behind the last whole record that has come: who ends without it has read all that there
        is. Files are there or not, and are read as ever.
        """

    def raw(self, wanted: OffsetRange, *, committed: Offset | None) -> Generator[memoryview]:
        """The master's own bytes of exactly `wanted`, unchecked, in pieces, each good until the next is asked for.

        To compare with: the edges need not be record boundaries. `committed` as in `read`; `wanted` lies below it.
        Closed early, it closes what it has opened.
        Raises OffsetOutOfRange, SegmentError, MasterUnreachable, MasterSilent, ProtocolViolation.
        """

    def drops_records(self) -> bool:
        """Whether the master takes records out of the middle of its log, and leaves their offsets without one; asks.

        Then what it has left of a range is compared record by record. Of a log with free offsets alone. Raises
        ConfigurationError (not allowed to ask), MasterUnreachable, MasterSilent, MasterError.
        """

    @property
    def restored_from(self) -> Sequence[str]:
        """The columns of RECORD_SCHEMA that `restore` needs, offset and size among them."""

    def restore(self, records: pa.RecordBatch) -> bytes:
        """The master's own bytes of `records`, one after the other: the inverse of `read`.

        Raises CorruptRecord for a row that `read` cannot have made.
        """

    @property
    def measured_by(self) -> Sequence[str]:
        """The columns of RECORD_SCHEMA that `lengths` needs."""

    def lengths(self, records: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """How many bytes each of `records` takes of what `raw`, `read` and `restore` give; 0 where nobody can say."""

    @property
    def proves_all(self) -> bool:
        """Whether all that was replicated is compared with the master before it is followed, not its last record alone.

        So it has to be where another master may have the same last record behind another past.
        """

    @property
    def overrules(self) -> bool:
        """Whether what this master says replaces what was replicated, without anybody being asked.

        So a job that finds the two apart takes the replica back by itself, unless the master is empty.
        """

    def common_offset(self, records: Iterable[tuple[OffsetRange, bytes]]) -> Offset | None:
        """Up to where a replica that holds `records` has the same history, by the rule that the master itself has.

        `records` are all of the replica's, in order: the range of each, and the master's bytes of it. The answer is
        where one of them ends, or 0 where they differ from the first one on. A master without such a rule says None,
        and takes no record: the checksums of the ledger are compared then. Raises as `read` does.
        """

    @property
    def keyed_state(self) -> KeyedState | None:
        """How the records make a map of keys and values, which the replica keeps, too; None of a log without one."""

    def metadata(self) -> Iterator[Fetched]:
        """What the master knows beside its log, kind by kind, asked for as the results are taken.

        What goes wrong with one kind is in its result; nothing where there is nobody to ask.
        """

    def open_session(self, prove: Callable[[], None] | None = None) -> Session:
        """A session to acknowledge through. It connects in the background, at the first acknowledgement.

        `prove` is called, from any thread and in the session's own turn (`Session.reading`), before the first promise
        of each connection, and raises LogtwinError where the master is not the one that the promise is for; then
        nothing is promised and it is tried again.
        """

    def acknowledged_by_master(self) -> Offset | None:
        """What the master itself counts as acknowledged by a slave that is connected now; None where it cannot say.

        Raises MasterUnreachable, MasterSilent.
        """
