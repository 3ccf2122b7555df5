"""Large commit logs, made fast: a block of encoded records, copied with its offsets, times and bodies rewritten."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sources.offsets import Offset
from sources.rocketmq.format.bodies import body_crc
from sources.rocketmq.format.commitlog import Message, encode
from sources.rocketmq.format.layout import BLANK, HEAD, V1, Host

FIVE_TOPICS = tuple(f"topic-{number}" for number in range(5))
QUEUES = 4
RECORDS_IN_BLOCK = 4000
BODY_BYTES = 1024
# section 1.2 of the format: what depends on a record's place
BODY_CRC_AT, QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT, BORN_TIMESTAMP_AT, STORE_TIMESTAMP_AT, BODY_AT = 8, 20, 28, 40, 56, 88
START_MS = 1_790_000_000_000


def _block(topics: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of RECORDS_IN_BLOCK messages of about 1 KB, and where each of them starts."""
    seeded = np.random.default_rng(5)
    host = Host(bytes([127, 0, 0, 1]), 10911)
    records = []
    for number in range(RECORDS_IN_BLOCK):
        half = seeded.integers(0, 256, BODY_BYTES // 2, dtype=np.uint8).tobytes()
        body = half + b"the other half compresses " * 19 + half[: BODY_BYTES // 2 - 494]
        properties = (
            f"KEYS\x01order-{number}\x02TAGS\x01tag{number % 7}\x02UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02"
            f"CLUSTER\x01c1\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02customer\x01c-{number % 101}\x02"
        ).encode()
        records.append(
            encode(
                Message(
                    magic=V1, body_crc=body_crc(body), queue_id=number % QUEUES, flag=0, queue_offset=0,
                    offset=Offset(0), sys_flag=0, born_timestamp_ms=START_MS, born_host=host,
                    store_timestamp_ms=START_MS, store_host=host, reconsume_times=0,
                    prepared_transaction_offset=0, body=body, topic=topics[number % len(topics)], properties=properties,
                )
            )
        )  # fmt: skip
    sizes = np.array([len(record) for record in records])
    return np.frombuffer(b"".join(records), dtype=np.uint8), np.cumsum(sizes) - sizes


def _put_bodies(block: np.ndarray, starts: np.ndarray, seeded: np.random.Generator) -> None:
    """New bytes for the first half of each body: no body comes twice, however a table is sorted."""
    halves = seeded.integers(0, 256, (len(starts), BODY_BYTES // 2), dtype=np.uint8)
    put(block, starts + BODY_AT, halves)
    bodies = (block[at : at + BODY_BYTES] for at in (starts + BODY_AT).tolist())
    checksums = np.array([body_crc(body.tobytes()) for body in bodies], dtype=">i4")
    put(block, starts + BODY_CRC_AT, checksums.view(np.uint8).reshape(-1, 4))


def put(block: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    """Write each row of `values`, bytes, at its place."""
    block[places[:, None] + np.arange(values.shape[1])] = values


def put_longs(block: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    """Write `values` as 8 bytes each at `places`."""
    put(block, places, values.astype(">i8").view(np.uint8).reshape(-1, 8))


def _queue_offsets(topics: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Of each record of the first block, and by how much it grows with each block: as many as its queue gets of one."""
    queues = [(topics[number % len(topics)], number % QUEUES) for number in range(RECORDS_IN_BLOCK)]
    in_block: Counter[tuple[str, int]] = Counter()
    first = np.zeros(RECORDS_IN_BLOCK, dtype=np.int64)
    for number, queue in enumerate(queues):
        first[number] = in_block[queue]
        in_block[queue] += 1
    return first, np.array([in_block[queue] for queue in queues])


def write_large_log(
    folder: Path,
    size_bytes: int,
    *,
    file_size_bytes: int = 256 * 1024 * 1024,
    topics: Sequence[str] = FIVE_TOPICS,
    span_ms: int = 3_600_000,
) -> int:
    """Segment files with about `size_bytes` of records; the offset after the last one.

    `topics` are taken in turn, over and over; store times grow with the offsets, over `span_ms` from START_MS on.
    """
    folder.mkdir(parents=True)
    data, starts = _block(topics)
    queue_offsets, more_offsets = _queue_offsets(topics)
    seeded = np.random.default_rng(6)
    end = 0
    for file_start in range(0, size_bytes, file_size_bytes):
        with (folder / f"{file_start:020d}").open("wb") as file:
            while file.tell() + len(data) + HEAD.size <= file_size_bytes and file_start + file.tell() < size_bytes:
                block = data.copy()
                offsets = starts + file_start + file.tell()
                put_longs(block, starts + PHYSICAL_OFFSET_AT, offsets)
                put_longs(block, starts + QUEUE_OFFSET_AT, queue_offsets)
                _put_bodies(block, starts, seeded)
                put_longs(
                    block, starts + STORE_TIMESTAMP_AT, START_MS + (offsets * (span_ms / size_bytes)).astype(np.int64)
                )
                queue_offsets = queue_offsets + more_offsets
                file.write(block.tobytes())
            end = file_start + file.tell()
            if end < size_bytes:
                file.write(HEAD.pack(file_size_bytes - file.tell(), BLANK))
                end = file_start + file_size_bytes
            file.truncate(file_size_bytes)
    return end
