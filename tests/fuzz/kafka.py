"""Batches of Kafka's: as brokers and clients write them, damaged under a right CRC or a wrong one."""

import functools
import random
import struct
import tempfile
import tracemalloc
from pathlib import Path

from sources.errors import CorruptRecord
from sources.kafka.format.batches import BatchLimits, DecodedBatches
from sources.kafka.format.columns import canonical
from sources.offsets import END, Offset, OffsetRange
from tests.fuzz.mutations import END_MS, FIRST_MS, TIMES_AT_BOUNDS_MS, mutated, text
from tests.peers.kafka_fixture import FIXTURES
from tests.sources.kafka.batches import (
    ALL,
    COMMITTED,
    COMPRESSIONS,
    HEADER_BYTES,
    UNCOMMITTED,
    Row,
    Sent,
    Written,
    decode,
    read_by_kafka_python,
    rows_of,
    with_crc,
)
from tests.sources.kafka.broker_logs import extract
from tests.sources.kafka.test_damage import of_headers, of_records

LIMITS = BatchLimits(max_batch_bytes=1 << 22, max_decompressed_bytes=1 << 22, max_cost_bytes=1 << 21)
MOST_BYTES = 1 << 24
"""What a decoder may hold of any bomb within LIMITS."""


@functools.cache
def stored_by_brokers() -> tuple[bytes, ...]:
    """Single batches."""
    found: list[bytes] = []
    for path in sorted(FIXTURES.glob("kafka-*")):
        with tempfile.TemporaryDirectory() as folder:
            for log in sorted(extract(path.name.removeprefix("kafka-"), Path(folder)).rglob("*.log")):
                found += _batches(log.read_bytes())[:50]
    return tuple(found)


def _batches(log: bytes) -> list[bytes]:
    found, at = [], 0
    while at + HEADER_BYTES <= len(log):
        (length,) = struct.unpack_from(">i", log, at + 8)
        found.append(log[at : at + 12 + length])
        at += 12 + length
    return [one for one in found if len(one) < 20_000]


def check(rng: random.Random) -> None:
    """The rows of another reader, where nothing was changed; else columns that hold, or CorruptRecord with a place."""
    if rng.random() < 0.05:
        _check_bomb(rng)
        return
    sound = b"".join(_sound(rng))
    if rng.random() < 0.3:
        found = decode(sound, ALL, (), UNCOMMITTED, LIMITS)
        assert rows_of(found.records) == list(map(_kept, read_by_kafka_python(sound)))
        return
    data = b"".join(_damaged(batch, rng) for batch in _batches(sound))
    wanted = OffsetRange(Offset(0), rng.choice((END, Offset(150))))
    try:
        _check_columns(decode(data, wanted, (), rng.choice((COMMITTED, UNCOMMITTED)), LIMITS), wanted)
    except CorruptRecord as error:
        assert error.offset is not None
        assert "makes its decoder fail" not in str(error)


def _kept(row: Row) -> Row:
    """The row of a record as kafka-python reads it: a time that no table takes is beside its type."""
    time_ms = row["timestamp"]
    if time_ms is None or FIRST_MS <= time_ms < END_MS:
        return row
    return row | {"timestamp": None, "timestamp_type": f"{row['timestamp_type']} {time_ms}"}


def _check_bomb(rng: random.Random) -> None:
    """Many headers or records, or claims of many, in a few bytes: refused, or read, but within so much memory."""
    count = rng.choice((0, 1, 1000, 300_000))
    claimed = rng.choice((count, count, count + 1, 2**31 - 1))
    bomb = rng.choice((of_headers, of_records))(count, claimed)
    tracemalloc.start()
    try:
        decode(bomb, ALL, (), UNCOMMITTED, LIMITS)
    except CorruptRecord as error:
        assert error.offset is not None
    finally:
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak_bytes < MOST_BYTES, peak_bytes


def _check_columns(found: DecodedBatches, wanted: OffsetRange) -> None:
    found.records.validate(full=True)
    offsets = found.records.column("offset").to_pylist()
    assert offsets == sorted(set(offsets))
    assert all(wanted.start <= offset < min(wanted.end, found.reached) for offset in offsets)
    half = len(offsets) // 2
    assert canonical(found.records) == canonical(found.records.slice(0, half)) + canonical(found.records.slice(half))


def _sound(rng: random.Random) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    for _ in range(rng.randint(1, 5)):
        if rng.random() < 0.3:
            batch = rng.choice(stored_by_brokers())
            last = struct.unpack_from(">i", batch, 23)[0]
            found.append(struct.pack(">q", at) + batch[8:])
            at += last + 1
        else:
            time_ms = rng.choice((0, 1_795_000_000_000, *TIMES_AT_BOUNDS_MS))
            made = Written(at, tuple(_sent(delta, rng, time_ms) for delta in range(rng.randint(1, 5))),
                           compression=rng.choice(COMPRESSIONS), epoch=rng.choice((0, 7)))  # fmt: skip
            found.append(bytes(made))
            at = made.end
    return found


def _sent(delta: int, rng: random.Random, time_ms: int) -> Sent:
    some = (None, b"", b"v", text(rng).encode("utf-8", "replace"), rng.randbytes(30))
    headers = tuple((text(rng)[:50], rng.choice(some)) for _ in range(rng.randint(0, 2)))
    return Sent(delta, rng.choice(some), rng.choice(some), headers, time_ms)


def _damaged(batch: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.4:
        return batch
    changed = mutated(batch, rng, 3)
    if rng.random() < 0.2 or len(changed) < HEADER_BYTES:
        return changed
    head = batch[:8] + struct.pack(">i", len(changed) - 12) + batch[12:17]
    return with_crc(head + changed[17:])
