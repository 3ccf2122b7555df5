"""The data for the contestants: a commit log of JSON-like bodies, and the same bodies as records of a Kafka topic.

`orders` are for typed tables.

Bodies are text that zstd compresses to about a quarter. No body occurs twice, and their text repeats only after
POOL_BYTES: never within a page of Parquet, even if a topic's partitions take turns with a few bodies each. Each message
has eight properties, as a 5.x broker stores them, with KEYS and a UNIQ_KEY that differ from message to message.
"""

from __future__ import annotations

import json
import multiprocessing
import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient

from sources.kafka.options import TopicOptions
from sources.kafka.topic import open_topic
from sources.master import Damage
from sources.offsets import LogId, Offset, OffsetRange
from sources.records import MESSAGE
from sources.rocketmq.format.bodies import body_crc
from sources.rocketmq.format.commitlog import Message, encode
from sources.rocketmq.format.layout import BLANK, HEAD, V1, Host
from sources.rocketmq.log import RocketMQLog
from tests.large_log import (
    BODY_AT,
    BODY_CRC_AT,
    BORN_TIMESTAMP_AT,
    FIVE_TOPICS,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    QUEUES,
    START_MS,
    STORE_TIMESTAMP_AT,
    put,
    put_longs,
)

LOG_ID = LogId("rocketmq", "bench")
FILE_BYTES = 256 * 1024 * 1024
POOL_BYTES = 24 * 1024 * 1024
_BLOCK_BYTES = 4 * 1024 * 1024
_TURN = len(FIVE_TOPICS) * QUEUES  # messages until the same queue of the same topic comes again
_MESSAGES_PER_MS = 100
_BODY_HEAD, _BODY_TAIL = b'{"order":"0000000000","lines":"', b'"}'
_NUMBER_IN_BODY = _BODY_HEAD.index(b"0")
_DIGITS, _HEX_DIGITS = 10, 12  # of a message's number in KEYS and the body; at the end of UNIQ_KEY
_SENDERS = 2
ORDER_KEYS = 50_000
_NOTE_CHARACTERS = 720
_SENT_BATCH_BYTES = 16 * 1024  # a producer's default; a larger record is a batch of its own
_LED_WITHIN_MS = 300_000


def write_log(folder: Path, body_bytes: int, count: int) -> Offset:
    """Write segment files of `count` messages with bodies of `body_bytes`, at least 64. Returns the end of the log.

    A file ends with a blank, which is a row of its own in a replica: see `rows`.
    """
    folder.mkdir(parents=True)
    block = _Block(body_bytes, count)
    start, left = 0, count
    while left:
        file_end = start + FILE_BYTES
        with (folder / f"{start:020d}").open("wb") as file:
            while left and file.tell() + block.size_bytes + HEAD.size <= FILE_BYTES:
                taken = min(left, block.records)
                file.write(block.encoded(count - left, start + file.tell(), taken))
                left -= taken
            end = start + file.tell()
            if left:
                file.write(HEAD.pack(file_end - end, BLANK))
            file.truncate(FILE_BYTES)
        start = file_end
    return Offset(end)


def rows(folder: Path, count: int) -> int:
    """The number of records in a log of `write_log`: its messages, and a blank at the end of each file but the last."""
    return count + len(list(folder.iterdir())) - 1


class _Block:
    """Messages that are encoded once; the parts that differ from one use to the next are overwritten."""

    def __init__(self, body_bytes: int, count: int) -> None:
        in_block = min(_BLOCK_BYTES // (body_bytes + 256), count)
        self.records = max(1, in_block // _TURN) * _TURN
        encoded = [_message(number, body_bytes) for number in range(self.records)]
        self._data = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        self._ends = np.cumsum([len(one) for one in encoded])
        self._starts = self._ends - [len(one) for one in encoded]
        self._keys = self._starts + [one.index(b"KEYS\x01order-") + 11 for one in encoded]
        self._unique_keys = self._starts + [one.index(b"UNIQ_KEY\x01") + 9 + 32 - _HEX_DIGITS for one in encoded]
        self._text_bytes = body_bytes - len(_BODY_HEAD) - len(_BODY_TAIL)
        self._body_bytes = body_bytes
        self._pool = memoryview(_pool(self._text_bytes))

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def encoded(self, first: int, offset: int, taken: int) -> memoryview:
        """`taken` messages, the first of which has number `first`, at `offset`."""
        block = self._data.copy()
        numbers = np.arange(first, first + self.records)
        times = START_MS + numbers // _MESSAGES_PER_MS
        put_longs(block, self._starts + PHYSICAL_OFFSET_AT, self._starts + offset)
        put_longs(block, self._starts + QUEUE_OFFSET_AT, numbers // _TURN)
        put_longs(block, self._starts + BORN_TIMESTAMP_AT, times)
        put_longs(block, self._starts + STORE_TIMESTAMP_AT, times)
        decimal = _digits(numbers, 10, _DIGITS)
        put(block, self._keys, decimal)
        put(block, self._starts + BODY_AT + _NUMBER_IN_BODY, decimal)
        put(block, self._unique_keys, _digits((numbers // _MESSAGES_PER_MS << 16) + numbers % 65536, 16, _HEX_DIGITS))
        self._put_bodies(block.data, first)
        return block.data[: int(self._ends[taken - 1])]

    def _put_bodies(self, block: memoryview, first: int) -> None:
        checksums = []
        size = self._text_bytes
        for number, at in enumerate((self._starts + BODY_AT).tolist(), first):
            text = number * size % POOL_BYTES
            text_at = at + len(_BODY_HEAD)
            block[text_at : text_at + size] = self._pool[text : text + size]
            checksums.append(body_crc(block[at : at + self._body_bytes]))
        places = self._starts + BODY_CRC_AT
        put(np.asarray(block), places, np.array(checksums, dtype=">i4").view(np.uint8).reshape(-1, 4))


def _message(number: int, body_bytes: int) -> bytes:
    text = b"." * (body_bytes - len(_BODY_HEAD) - len(_BODY_TAIL))
    properties = (
        f"KEYS\x01order-{0:0{_DIGITS}}\x02TAGS\x01tag{number % 7}\x02"
        f"UNIQ_KEY\x017F00000112F418B4AAC2{0:0{_HEX_DIGITS}}"
        f"\x02WAIT\x01true\x02CLUSTER\x01DefaultCluster\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true"
        f"\x02customer\x01c-{number % 101}\x02"
    ).encode()
    host = Host(bytes([127, 0, 0, 1]), 10911)
    return encode(
        Message(
            magic=V1, body_crc=0, queue_id=number // len(FIVE_TOPICS) % QUEUES, flag=0, queue_offset=0,
            offset=Offset(0), sys_flag=0, born_timestamp_ms=0, born_host=host, store_timestamp_ms=0, store_host=host,
            reconsume_times=0, prepared_transaction_offset=0, body=_BODY_HEAD + text + _BODY_TAIL,
            topic=FIVE_TOPICS[number % len(FIVE_TOPICS)], properties=properties,
        )
    )  # fmt: skip


def _pool(more_bytes: int) -> bytes:
    """POOL_BYTES of text, followed by its first `more_bytes` again. It needs no escapes in JSON."""
    seeded = np.random.default_rng(7)
    words = ["".join(map(chr, seeded.integers(97, 123, size))) for size in seeded.integers(3, 11, 400)]
    lines = [f"sku={number:06d} qty={number % 9 + 1} " for number in seeded.integers(0, 10**6, 4000).tolist()]
    texts = [" ".join(seeded.choice(words, 3)) + "; " for _ in range(4000)]
    pieces: list[str] = []
    size = len(lines[0]) + 15  # at least, of a line and its text
    for line, text in seeded.integers(0, 4000, (POOL_BYTES // size, 2)).tolist():
        pieces += (lines[line], texts[text])
    text = "".join(pieces).encode()[:POOL_BYTES]
    return text + text[:more_bytes]


def _digits(numbers: np.ndarray, base: int, count: int) -> np.ndarray:
    """The digits of each number, as a row of `count` characters."""
    characters = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)
    return characters[numbers[:, None] // base ** np.arange(count - 1, -1, -1) % base]


def opened(folder: Path) -> RocketMQLog:
    return RocketMQLog(log_id=LOG_ID, path=str(folder))


def orders(records: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values: JSON objects of about 1 KB with ten fields."""
    chance = random.Random(7)
    words = ["".join(chance.choices("abcdefghijklmnoprstuvw", k=chance.randrange(3, 11))) for _ in range(400)]
    notes = [" ".join(chance.choices(words, k=200))[:_NOTE_CHARACTERS] for _ in range(2000)]
    for number in range(records):
        order = f"O-{chance.randrange(ORDER_KEYS):09d}"
        fields = {
            "order_id": order, "customer": chance.randrange(10**6), "status": chance.choice(("paid", "sent", "open")),
            "currency": chance.choice(("EUR", "CZK")), "amount": round(chance.uniform(1, 500), 2) + 0.001,
            "quantity": chance.randrange(1, 9), "is_paid": bool(number % 3), "weight": chance.uniform(0, 9),
            "country": chance.choice(("cz", "de", "cn")), "note": chance.choice(notes),
        }  # fmt: skip
        yield order.encode(), json.dumps(fields).encode()


def create_topic(server: str, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
    """Create a topic, and wait until the broker leads all its partitions: for a thousand that takes it ten seconds."""
    one = {"num_partitions": partitions, "replication_factor": 1, "configs": configs or {}}
    with closing(KafkaAdminClient(bootstrap_servers=server)) as admin:
        admin.create_topics({topic: one}, wait_for_metadata=True)
    made = open_topic(TopicOptions(id=f"kafka/bench/{topic}", servers=server))
    replace(made, patience_ms=_LED_WITHIN_MS).bounds()


def delete_topic(server: str, topic: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=server)) as admin:
        admin.delete_topics([topic])


def fill_topic(
    server: str,
    topic: str,
    log_folder: Path,
    partitions: int,
    *,
    count: int | None = None,
    has_properties: bool = False,
) -> None:
    """Create a topic with the first `count` messages of a log, or all: body, KEYS as the key, and one small header.

    With `has_properties` the headers are the message's seven other properties. Messages go to the partitions in turn,
    from two processes, so their order there is not exactly the log's.
    """
    create_topic(server, topic, partitions)
    log = opened(log_folder)
    pieces = log.plan(log.bounds())
    context = multiprocessing.get_context("spawn")  # the caller may have threads
    with ProcessPoolExecutor(_SENDERS, mp_context=context) as pool:
        parts = [pieces[sender::_SENDERS] for sender in range(_SENDERS)]
        sent = [
            pool.submit(_send, server, topic, log_folder, part, partitions, count, has_properties) for part in parts
        ]
        for one in sent:
            one.result()


def _send(
    server: str,
    topic: str,
    log_folder: Path,
    pieces: Sequence[OffsetRange],
    partitions: int,
    count: int | None,
    has_properties: bool,
) -> None:
    producer = KafkaProducer(bootstrap_servers=server, linger_ms=5, batch_size=_SENT_BATCH_BYTES)
    headers = [("channel", b"web")]
    with closing(producer):
        for properties, body in _messages(log_folder, pieces):
            key = properties.pop("KEYS").encode()
            number = int(key[-_DIGITS:])
            if count is not None and number >= count:
                break
            if has_properties:
                headers = [(name, value.encode()) for name, value in properties.items()]
            producer.send(topic, body, key, headers=headers, partition=number % partitions)


def _messages(folder: Path, pieces: Sequence[OffsetRange]) -> Iterator[tuple[dict[str, str], bytes]]:
    """The properties and the body of each message in `pieces` of the log, in order."""
    log = opened(folder)
    for piece in pieces:
        for chunk in log.read(piece, committed=None, boundary=True):
            if isinstance(chunk, Damage):
                raise chunk.error
            records = chunk.records.filter(pc.equal(chunk.records.column("kind"), MESSAGE))
            properties, bodies = records.column("properties").to_pylist(), records.column("body").to_pylist()
            yield from zip(map(dict, properties), bodies, strict=True)
