"""Large commit logs, made fast: a block of encoded records, copied with its offsets rewritten."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sources.offsets import Offset
from sources.rocketmq.commitlog import BLANK, HEAD, V1, Host, Message, body_crc, encode

TOPICS = 5
QUEUES = 4
RECORDS_IN_BLOCK = 200 * TOPICS * QUEUES  # so that each queue gets as many of each block
BODY_BYTES = 1024
QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT = 20, 28  # section 1.2 of the format: what depends on a record's place


def _block() -> tuple[np.ndarray, np.ndarray]:
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
                    offset=Offset(0), sys_flag=0, born_timestamp_ms=1_790_000_000_000, born_host=host,
                    store_timestamp_ms=1_790_000_000_000 + number, store_host=host, reconsume_times=0,
                    prepared_transaction_offset=0, body=body, topic=f"topic-{number % TOPICS}", properties=properties,
                )
            )
        )  # fmt: skip
    sizes = np.array([len(record) for record in records])
    return np.frombuffer(b"".join(records), dtype=np.uint8), np.cumsum(sizes) - sizes


def _put(block: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    """Write `values` as 8 bytes each at `places`."""
    block[places[:, None] + np.arange(8)] = values.astype(">i8").view(np.uint8).reshape(-1, 8)


def write_large_log(folder: Path, size_bytes: int, *, file_size_bytes: int = 256 * 1024 * 1024) -> int:
    """Segment files with about `size_bytes` of records; the offset after the last one."""
    folder.mkdir(parents=True)
    data, starts = _block()
    queue_offsets = np.arange(RECORDS_IN_BLOCK) // (TOPICS * QUEUES)
    end = 0
    for file_start in range(0, size_bytes, file_size_bytes):
        with (folder / f"{file_start:020d}").open("wb") as file:
            while file.tell() + len(data) + HEAD.size <= file_size_bytes and file_start + file.tell() < size_bytes:
                block = data.copy()
                _put(block, starts + PHYSICAL_OFFSET_AT, starts + file_start + file.tell())
                _put(block, starts + QUEUE_OFFSET_AT, queue_offsets)
                queue_offsets += RECORDS_IN_BLOCK // (TOPICS * QUEUES)
                file.write(block.tobytes())
            end = file_start + file.tell()
            if end < size_bytes:
                file.write(HEAD.pack(file_size_bytes - file.tell(), BLANK))
                end = file_start + file_size_bytes
            file.truncate(file_size_bytes)
    return end
