"""The embedded master's store: it turns messages into a RocketMQ commit log on disk.

Invariants:

* the log is a sequence of whole records from `min_offset` to `max_offset`; a failed write moves neither;
* all but the last file are durable: a file is flushed before the next one is begun, so a crash can tear only the last;
* store timestamps never decrease along the log, and queue offsets grow by one per message, in log order;
* all messages of one `append` lie in one file.

Plain synchronous code for one thread; only `flush` may run in another.
"""

from __future__ import annotations

import fcntl
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sources.errors import ConfigurationError, LogtwinError
from sources.offsets import Offset
from sources.rocketmq.embedded.log_files import LogFiles, Recovered, recover
from sources.rocketmq.embedded.remoting_service import Refused
from sources.rocketmq.format.bodies import body_crc
from sources.rocketmq.format.commitlog import Message, encode
from sources.rocketmq.format.layout import (
    BLANK,
    BORN_HOST_IPV6,
    HEAD,
    STORE_HOST_IPV6,
    V1,
    V2,
    Host,
    Limits,
    minimum_size,
)
from sources.rocketmq.wire.remoting import ResponseCode

log = logging.getLogger(__name__)

DEFAULT_FILE_SIZE_BYTES: Final = 64 * 1024 * 1024
DEFAULT_MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024  # maxMessageSize
MAX_V1_TOPIC_BYTES: Final = 127
MAX_PROPERTIES_BYTES: Final = 32767
_LEAST_RECORD_BYTES: Final = minimum_size(V1, 0)
_HOST_BITS: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """One message to store. `properties` is the block to store; the bits for the hosts' form need not be set."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    born_host: Host
    born_timestamp_ms: int
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """The offsets of a stored message, in the log and in its queue."""

    offset: Offset
    size: int
    queue_id: int
    queue_offset: int

    @property
    def end(self) -> Offset:
        """The end of the record: whoever holds everything below it holds this message."""
        return Offset(self.offset + self.size)


class CommitLogStore:
    """The log below `root`: `commitlog/` holds its files, `lock` keeps a second master out.

    Raises ConfigurationError (in use, sizes that do not go together), SegmentError, CorruptRecord, OSError.
    """

    def __init__(
        self,
        root: Path,
        store_host: Host,
        *,
        file_size_bytes: int = DEFAULT_FILE_SIZE_BYTES,
        max_message_bytes: int | None = None,
    ) -> None:
        """`max_message_bytes` limits a body, and a whole batch; None: 4 MiB, or less if a file cannot hold that."""
        root.mkdir(parents=True, exist_ok=True)
        self._store_host = store_host
        with ExitStack() as opened:
            opened.enter_context(_locked(root / "lock"))
            self._files = LogFiles(root / "commitlog", file_size_bytes)
            opened.callback(self._files.close)
            self.max_message_bytes = _max_message_bytes(max_message_bytes, self._files.size_bytes)
            recovered = self._recover()
            self._opened = opened.pop_all()
        self._end = self._flushed = recovered.end
        self._next_queue_offsets = recovered.next_queue_offsets
        self._last_timestamp_ms = recovered.last_store_timestamp_ms
        self.first_timestamp_ms = recovered.first_store_timestamp_ms
        self.appended_messages = 0  # since the start
        self.appended_bytes = 0

    @property
    def file_size_bytes(self) -> int:
        return self._files.size_bytes

    @property
    def min_offset(self) -> Offset:
        return self._files.first

    @property
    def max_offset(self) -> Offset:
        """The end of the log, where the next record goes unless its file has no room for it."""
        return self._end

    @property
    def flushed_offset(self) -> Offset:
        """The offset below which everything is durable."""
        return self._flushed

    @property
    def last_file_start(self) -> Offset:
        return self._files.file_start(self._end)

    @property
    def is_empty(self) -> bool:
        """Whether there is no file yet; the first message creates the first one."""
        return self._files.end == self._files.first

    @property
    def queues(self) -> tuple[tuple[str, int], ...]:
        """(topic, queue id) of every queue that holds a message."""
        return tuple(self._next_queue_offsets)

    def append(self, puts: Sequence[Put]) -> tuple[Stored, ...]:
        """Store `puts` as consecutive records of one file. Raises Refused, OSError; then none of them is stored."""
        for put in puts:
            _check_lengths(put, self.max_message_bytes)
        now_ms = max(time.time_ns() // 1_000_000, self._last_timestamp_ms)
        encoded = self._encode(puts, now_ms)
        if self._make_room(sum(stored.size for _, stored in encoded)):
            encoded = self._encode(puts, now_ms)
        self._files.write(self._end, b"".join(record for record, _ in encoded))
        self._last_timestamp_ms = now_ms
        self.first_timestamp_ms = self.first_timestamp_ms or now_ms
        for put, (_, stored) in zip(puts, encoded, strict=True):
            self._next_queue_offsets[put.topic, put.queue_id] = stored.queue_offset + 1
            self._end = stored.end
            self.appended_bytes += stored.size
        self.appended_messages += len(puts)
        return tuple(stored for _, stored in encoded)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return up to `size_bytes` from `offset`, within one file; nothing outside the log."""
        if not self.min_offset <= offset < self._end:
            return b""
        return self._files.read(Offset(offset), min(size_bytes, self._end - offset))

    def flush(self) -> None:
        """Make everything stored so far durable. One other thread at a time may call it. Raises OSError."""
        end = self._end
        if end > self._flushed:
            self._files.sync(Offset(end - 1))
            self._flushed = max(self._flushed, end)

    def close(self) -> None:
        """Flush, and release the store. Idempotent."""
        with self._opened:
            self.flush()

    def _recover(self) -> Recovered:
        try:
            found = recover(self._files.segments, Limits())
        except LogtwinError as error:
            raise error.at(self._files.directory) from None
        if found.torn is not None:
            log.warning("cut off what a crash left of the last record: %s", found.torn)
            self._files.clear(found.end)
        log.info("the log holds %s to %s in files of %s bytes", self.min_offset, found.end, self.file_size_bytes)
        return found

    def _encode(self, puts: Sequence[Put], now_ms: int) -> list[tuple[bytes, Stored]]:
        """Return the records of `puts` at the end of the log, and their offsets."""
        encoded: list[tuple[bytes, Stored]] = []
        ahead: dict[tuple[str, int], int] = {}
        at = self._end
        for put in puts:
            queue = (put.topic, put.queue_id)
            queue_offset = ahead.get(queue, self._next_queue_offsets.get(queue, 0))
            ahead[queue] = queue_offset + 1
            record = self._record(put, at, queue_offset, now_ms)
            stored = Stored(at, len(record), put.queue_id, queue_offset)
            encoded.append((record, stored))
            at = stored.end
        return encoded

    def _record(self, put: Put, offset: Offset, queue_offset: int, now_ms: int) -> bytes:
        topic_bytes = len(put.topic.encode())
        hosts = put.born_host.is_ipv6 * BORN_HOST_IPV6 | self._store_host.is_ipv6 * STORE_HOST_IPV6
        message = Message(
            magic=V1 if topic_bytes <= MAX_V1_TOPIC_BYTES else V2,
            body_crc=body_crc(put.body),
            queue_id=put.queue_id,
            flag=put.flag,
            queue_offset=queue_offset,
            offset=offset,
            sys_flag=put.sys_flag & ~_HOST_BITS | hosts,
            born_timestamp_ms=put.born_timestamp_ms,
            born_host=put.born_host,
            store_timestamp_ms=now_ms,
            store_host=self._store_host,
            reconsume_times=put.reconsume_times,
            prepared_transaction_offset=0,
            body=put.body,
            topic=put.topic,
            properties=put.properties,
        )
        return encode(message)

    def _make_room(self, size_bytes: int) -> bool:
        """Make sure that `size_bytes` fit at the end; return whether that moved the end. Raises Refused, OSError."""
        if size_bytes + HEAD.size > self.file_size_bytes:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"{size_bytes} bytes do not fit into a file of the commit log")
        start = self._end
        left = self._files.left_in_file(start)
        if start < self._files.end and size_bytes + HEAD.size > left:  # the broker's rule: a blank must still fit
            self._files.write(start, HEAD.pack(left, BLANK))
            self._end = Offset(start + left)
            self.flush()
        if self._end == self._files.end:
            self._files.create_next()
        return self._end != start


def _check_lengths(put: Put, max_message_bytes: int) -> None:
    if len(put.body) > max_message_bytes:
        problem = f"the body has {len(put.body)} bytes, {max_message_bytes} are allowed"
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, problem)
    if len(put.properties) > MAX_PROPERTIES_BYTES:
        problem = f"the properties have {len(put.properties)} bytes, {MAX_PROPERTIES_BYTES} are allowed"
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, problem)


def _max_message_bytes(wanted: int | None, file_size_bytes: int) -> int:
    """Return the largest body. Raises ConfigurationError if a file cannot hold a record of it and a blank."""
    room = file_size_bytes - _LEAST_RECORD_BYTES - HEAD.size
    if room < 1 or (wanted is not None and wanted > room):
        raise ConfigurationError(
            "the files of the commit log are too small for the messages",
            expected=f"files of at least {(wanted or 1) + file_size_bytes - room} bytes",
            found=f"{file_size_bytes} bytes",
            hint="Choose larger files or a smaller limit on messages. Files that exist keep their size.",
        )
    return min(DEFAULT_MAX_MESSAGE_BYTES, room) if wanted is None else wanted


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the store against other masters: ours (flock, also within one process) and real brokers (lockf)."""
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigurationError(
                "the store is in use",
                expected="a store that no other master has open",
                found=f"{path} is locked",
                hint="Stop the other master, or give this one another store.",
            ) from error
        yield
