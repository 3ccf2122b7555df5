"""How the embedded master answers a send request (10, 310, 320).

It checks the request, completes it as a broker does, stores it and, if the producer wants that, waits for slaves.

It stores as a 5.x broker does: properties end in 0x02 and get CLUSTER, MSG_REGION, TRACE_ON, and UNIQ_KEY if the
client sent none. A batch is unpacked into ordinary records; each item's properties are followed by the batch's own.
Delays, transactions and inner batches need services that this master does not have: they are refused, not ignored.

UNIQ_KEY is the upper-case hex of (`MessageClientIDSetter`; integers big-endian):

========  ===============================================================================
bytes     field
========  ===============================================================================
4 or 16   IP address of the maker
u16       low 16 bits of the process id
i32       hash of Java's class loader; here a random number that tells makers in one process apart
u32       ms since the start of the month, UTC
u16       counter
========  ===============================================================================
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import struct
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from sources.errors import CorruptRecord, ProtocolViolation
from sources.rocketmq.embedded.double_write import DoubleWrite
from sources.rocketmq.embedded.remoting_service import Answer, Refused
from sources.rocketmq.embedded.store import CommitLogStore, Put, Stored
from sources.rocketmq.embedded.topics import TopicConfig, TopicTable
from sources.rocketmq.format.commitlog import BatchItem, decode_items
from sources.rocketmq.format.layout import Host
from sources.rocketmq.format.properties import CLUSTER, MSG_REGION, PROPERTY_SEPARATOR, TRACE_ON, encode
from sources.rocketmq.wire.remoting import Command, RequestCode, ResponseCode
from sources.rocketmq.wire.send_header import SendHeader, decode_send_header

REGION: Final = "DefaultRegion"
_INNER_BATCH_BITS: Final = 0xC0
_TRANSACTION_BITS: Final = 0xC
_UNSUPPORTED: Final = re.compile(
    r"(?:^|\x02)(DELAY\x01[1-9]|TIMER_(?:DELAY_SEC|DELAY_MS|DELIVER_MS)\x01.|TRAN_MSG\x01true)", re.DOTALL
)
_HAS_UNIQUE_KEY: Final = re.compile(rb"(?:^|\x02)UNIQ_KEY\x01[^\x02]")

_TIME_AND_COUNT: Final = struct.Struct(
    ">"
    "I"  # ms since the start of the month
    "H"  # counter
)


class Sending:
    """Answers send requests, for one store."""

    def __init__(
        self, store: CommitLogStore, topics: TopicTable, double_write: DoubleWrite, store_host: Host, cluster: str
    ) -> None:
        self._store = store
        self._topics = topics
        self._double_write = double_write
        self._store_host = store_host.pack()
        self._common = encode({MSG_REGION: REGION, CLUSTER: cluster, TRACE_ON: "true"})
        self._turns: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        self._unique_keys = UniqueKeys(store_host.ip)

    def answer(self, request: Command, sender: Host) -> Answer:
        """Return the response to a send request; later, if it waits for slaves. Raises Refused, OSError."""
        try:
            header = decode_send_header(request.ext_fields, request.code)
        except ProtocolViolation as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        _check_supported(header)
        topic = self._topics.for_sending(header.topic, header.default_topic_queue_nums)
        queue_id = self._queue_id(topic, header.queue_id)
        is_batch = header.batch or request.code == RequestCode.SEND_BATCH_MESSAGE
        items = self._items(request.body) if is_batch else None
        stored = self._store.append(self._puts(header, queue_id, items, request.body, sender))
        if self._double_write.is_wanted(header):
            return self._replicated(request, header, sender, stored)
        return request.response(ResponseCode.SUCCESS, ext_fields=self._where(stored))

    async def _replicated(
        self, request: Command, header: SendHeader, sender: Host, stored: tuple[Stored, ...]
    ) -> Command:
        """Return the response once it is known what slaves hold; the message is stored in any case."""
        status = await self._double_write.status(stored[-1].end, header, sender)
        return request.response(status, ext_fields=self._where(stored))

    def _queue_id(self, topic: TopicConfig, wanted: int) -> int:
        """Return the queue to store into; a negative number lets the queues take turns."""
        if wanted < 0:
            return next(self._turns[topic.name]) % topic.queues
        if wanted >= topic.queues:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"queue {wanted} does not exist: topic {topic.name} has {topic.queues}"
            )
        return wanted

    def _items(self, batch: bytes) -> list[BatchItem]:
        """Return the messages of a batch, at least one."""
        if len(batch) > self._store.max_message_bytes:
            problem = f"the batch has {len(batch)} bytes, {self._store.max_message_bytes} are allowed"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, problem)
        try:
            items = decode_items(batch)
        except CorruptRecord as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        if not items:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the batch is empty")
        return items

    def _puts(
        self, header: SendHeader, queue_id: int, items: list[BatchItem] | None, body: bytes, sender: Host
    ) -> list[Put]:
        """Return what to store: each item of a batch, or the one message."""
        common = _ended(_block(header.properties)) + self._common
        if items is None:
            items = [BatchItem(header.flag, body, b"")]
        return [
            Put(
                topic=header.topic,
                queue_id=queue_id,
                body=item.body,
                properties=self._with_unique_key(_ended(item.properties) + common),
                born_host=sender,
                born_timestamp_ms=header.born_timestamp_ms,
                flag=item.flag,
                sys_flag=header.sys_flag,
                reconsume_times=header.reconsume_times,
            )
            for item in items
        ]

    def _with_unique_key(self, block: bytes) -> bytes:
        if _HAS_UNIQUE_KEY.search(block):
            return block
        return block + encode({"UNIQ_KEY": next(self._unique_keys)})

    def _where(self, stored: tuple[Stored, ...]) -> dict[str, str]:
        """Return the response's ext fields; for a batch, all message ids and the first queue offset."""
        ids = [(self._store_host + one.offset.to_bytes(8, "big")).hex().upper() for one in stored]
        return {
            "msgId": ",".join(ids),
            "queueId": str(stored[0].queue_id),
            "queueOffset": str(stored[0].queue_offset),
            MSG_REGION: REGION,
            TRACE_ON: "true",
        }


def _block(properties: str) -> bytes:
    try:
        return properties.encode()
    except UnicodeEncodeError as error:  # JSON can contain half of a surrogate pair
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the properties are no text: {error}") from error


def _ended(block: bytes) -> bytes:
    """Return the block with the separator that its last pair may lack."""
    return block if not block or block.endswith(PROPERTY_SEPARATOR) else block + PROPERTY_SEPARATOR


def _check_supported(header: SendHeader) -> None:
    if header.sys_flag & _TRANSACTION_BITS:
        raise Refused(ResponseCode.NO_PERMISSION, "this master does not do transactions")
    if header.sys_flag & _INNER_BATCH_BITS:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, "this master does not do inner batches")
    if unsupported := _UNSUPPORTED.search(header.properties):
        name = unsupported[1].partition("\x01")[0]
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"this master does not do what property {name} asks for")


class UniqueKeys:
    """Makes unique keys: one at each `next`, without end."""

    def __init__(self, ip: bytes) -> None:
        """`ip` is 4 or 16 bytes."""
        self._prefix = ip + struct.pack(">H4s", os.getpid() & 0xFFFF, secrets.token_bytes(4))
        self._counter = itertools.count()
        self._month_start_ms = self._next_month_ms = 0

    def __next__(self) -> str:
        now_ms = time.time_ns() // 1_000_000
        if not self._month_start_ms <= now_ms < self._next_month_ms:
            self._month_start_ms, self._next_month_ms = _month_around(now_ms)
        count = next(self._counter) & 0xFFFF
        return (self._prefix + _TIME_AND_COUNT.pack(now_ms - self._month_start_ms, count)).hex().upper()


def _month_around(now_ms: int) -> tuple[int, int]:
    """Return the start of the month and of the next one, in ms."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    start = datetime(now.year, now.month, 1, tzinfo=UTC)
    following = datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
    return int(start.timestamp() * 1000), int(following.timestamp() * 1000)
