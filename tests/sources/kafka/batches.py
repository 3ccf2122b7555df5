"""Batches for tests, built by kafka-python's builder, and read by its own iteration: another implementation."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import crc32c
import pyarrow as pa
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from sources.kafka.cluster.settings import Isolation
from sources.kafka.format.batches import BatchLimits, DecodedBatches, decode_sound
from sources.kafka.format.transactions import Aborted
from sources.offsets import END, Offset, OffsetRange

NONE, GZIP, SNAPPY, LZ4, ZSTD = COMPRESSIONS = range(5)
LOG_APPEND_TIME, CONTROL = 0x08, 0x20
HEADER_BYTES = 61
ATTRIBUTES_AT = 21
ALL = OffsetRange(Offset(0), END)
COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED
ABORT_KEY, COMMIT_KEY = struct.pack(">hh", 0, 0), struct.pack(">hh", 0, 1)
NOW_MS = 1_795_000_000_000

Row = dict[str, Any]
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Sent:
    """A record. `delta` is how far behind its batch's base offset it is."""

    delta: int = 0
    key: bytes | None = None
    value: bytes | None = b"value"
    headers: Headers = ()
    timestamp_ms: int = NOW_MS


@dataclass(frozen=True)
class Written:
    """A batch as a broker wrote it; `last_delta` where its last offset is not that of its last record."""

    base_offset: int
    records: tuple[Sent, ...]
    epoch: int = 0
    compression: int = NONE
    attributes: int = 0
    producer_id: int = -1
    transactional: bool = False
    last_delta: int | None = None

    @property
    def end(self) -> int:
        last = max((record.delta for record in self.records), default=0) if self.last_delta is None else self.last_delta
        return self.base_offset + last + 1

    def __bytes__(self) -> bytes:
        builder = DefaultRecordBatchBuilder(
            magic=2, compression_type=self.compression, is_transactional=self.transactional,
            producer_id=self.producer_id, producer_epoch=0, base_sequence=0, batch_size=1 << 30,
        )  # fmt: skip
        for record in self.records:
            builder.append(record.delta, record.timestamp_ms, record.key, record.value, list(record.headers))
        batch = bytearray(builder.build())
        struct.pack_into(">q", batch, 0, self.base_offset)
        struct.pack_into(">i", batch, 12, self.epoch)
        (attributes,) = struct.unpack_from(">h", batch, ATTRIBUTES_AT)
        struct.pack_into(">hi", batch, ATTRIBUTES_AT, attributes | self.attributes, self.end - self.base_offset - 1)
        return with_crc(batch)


def written(base_offset: int, *values: bytes, **options: Any) -> Written:
    return Written(base_offset, tuple(Sent(delta, value=value) for delta, value in enumerate(values)), **options)


def marker(offset: int, producer_id: int, key: bytes) -> Written:
    record = Sent(key=key, value=struct.pack(">hi", 0, 0))
    return Written(offset, (record,), attributes=CONTROL, producer_id=producer_id, transactional=True)


def with_crc(batch: bytes | bytearray) -> bytes:
    """The same with the CRC that its bytes have."""
    return bytes(batch[:17]) + struct.pack(">I", crc32c.crc32c(bytes(batch[ATTRIBUTES_AT:]))) + bytes(batch[21:])


def with_body(body: bytes, count: int = 1, compression: int = NONE, last_delta: int = 0, base_offset: int = 0) -> bytes:
    """A batch with these bytes for records, whatever they are, and a right CRC."""
    fields = (0, compression, last_delta, NOW_MS, NOW_MS, -1, -1, -1, count)
    return with_crc(struct.pack(">qiib", base_offset, 49 + len(body), 0, 2) + struct.pack(">Ihiqqqhii", *fields) + body)


def log_of(batches: Iterable[Written]) -> bytes:
    return b"".join(map(bytes, batches))


def decode(
    log: bytes | memoryview,
    wanted: OffsetRange,
    aborted: Sequence[Aborted],
    isolation: Isolation,
    limits: BatchLimits | None = None,
) -> DecodedBatches:
    """As `decode_sound`, but raise the error if there is one."""
    found = decode_sound(log, wanted, aborted, isolation, limits or BatchLimits())
    if found.error is not None:
        raise found.error
    return found


def decoded(
    log: bytes,
    wanted: OffsetRange = ALL,
    aborted: Sequence[Aborted] = (),
    isolation: Isolation = COMMITTED,
    limits: BatchLimits | None = None,
) -> DecodedBatches:
    found = decode(log, wanted, aborted, isolation, limits)
    found.records.validate(full=True)
    return found


def values(found: DecodedBatches) -> list[bytes | None]:
    read: list[bytes | None] = found.records.column("value").to_pylist()
    return read


def offsets(found: DecodedBatches) -> list[int]:
    read: list[int] = found.records.column("offset").to_pylist()
    return read


def rows_of(records: pa.RecordBatch) -> list[Row]:
    """Times in milliseconds, headers as pairs."""
    times_us = records.column("timestamp").cast(pa.int64()).to_pylist()
    rows: list[Row] = records.to_pylist()
    for row, time_us in zip(rows, times_us, strict=True):
        row["timestamp"] = None if time_us is None else time_us // 1000
        row["headers"] = [(header["key"], header["value"]) for header in row["headers"]]
    return rows


def read_by_kafka_python(log: bytes) -> Iterator[Row]:
    """Every record but those of control batches, as `rows_of` has them."""
    for batch in MemoryRecords(log):
        assert batch.validate_crc()
        epoch = getattr(batch, "leader_epoch", -1)  # messages of the formats before 2 have none
        for record in () if getattr(batch, "is_control_batch", False) else batch:
            yield {
                "offset": record.offset,
                "leader_epoch": epoch if epoch >= 0 else None,
                "timestamp": record.timestamp if record.timestamp != -1 else None,
                "timestamp_type": "log_append_time" if record.timestamp_type else "create_time",
                "key": record.key,
                "value": record.value,
                "headers": record.headers,
            }


TEXTS = st.none() | st.binary(max_size=9) | st.binary(min_size=60, max_size=200)
TIMES_MS = st.integers(-1, 2**42) | st.just(-1)


@st.composite
def logs(draw: st.DrawFn, max_batches: int = 6) -> list[Written]:
    """Batches in order, with holes between and inside them, some without records."""
    batches: list[Written] = []
    at = draw(st.integers(0, 2**33))
    for _ in range(draw(st.integers(0, max_batches))):
        deltas = sorted(draw(st.sets(st.integers(0, 300), max_size=6)))
        records = tuple(
            Sent(delta, draw(TEXTS), draw(TEXTS), draw(headers()), draw(TIMES_MS)) for delta in deltas
        )  # fmt: skip
        batch = Written(
            at, records, draw(st.integers(-1, 9)), draw(st.sampled_from(COMPRESSIONS)),
            draw(st.sampled_from((0, LOG_APPEND_TIME))), last_delta=(deltas or [0])[-1] + draw(st.integers(0, 5)),
        )  # fmt: skip
        batches.append(batch)
        at = batch.end + draw(st.sampled_from((0, 0, 1, 70)))
    return batches


def headers() -> st.SearchStrategy[Headers]:
    return st.lists(st.tuples(st.text(max_size=5) | st.just("k" * 100), TEXTS), max_size=4).map(tuple)
