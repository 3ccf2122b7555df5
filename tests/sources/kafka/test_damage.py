"""Damaged answers: every one is refused naming an offset, or is none."""

import gzip
import struct
import tracemalloc
from collections.abc import Sequence
from typing import Any

import lz4.frame
import pyarrow as pa
import pytest
import zstandard

from sources.errors import ChecksumMismatch, CorruptRecord, OutOfMemory
from sources.kafka.format import batches
from sources.kafka.format.batch_header import Batch
from sources.kafka.format.batches import HEADER_COST_BYTES, RECORD_COST_BYTES, BatchLimits
from sources.kafka.format.columns import record_columns
from sources.offsets import END, Offset, OffsetRange
from tests.sources.kafka.batches import (
    ALL,
    ATTRIBUTES_AT,
    COMMITTED,
    GZIP,
    HEADER_BYTES,
    LZ4,
    SNAPPY,
    ZSTD,
    Sent,
    Written,
    decoded,
    log_of,
    offsets,
    rows_of,
    values,
    with_body,
    with_crc,
    written,
)
from tests.spans import span

BATCH = bytes(Written(100, (Sent(0, b"k", b"v", (("h", b"x"),)), Sent(1, None, None))))
NO_PLACE_OF_ITS_OWN = 16  # base offset, length and leader epoch are not in the CRC


@pytest.mark.parametrize("change", [1, 0x80, 0xFF])
def test_every_byte_that_the_crc_covers(change: int) -> None:
    for at in range(NO_PLACE_OF_ITS_OWN, len(BATCH)):
        damaged = bytearray(BATCH)
        damaged[at] ^= change
        with pytest.raises(CorruptRecord, match="at offset 100") as raised:
            decoded(bytes(damaged))
        assert isinstance(raised.value, ChecksumMismatch) == (at > NO_PLACE_OF_ITS_OWN), at


@pytest.mark.parametrize(
    ("length", "problem"),
    [
        (len(BATCH) - 12 + 1, "CRC"),  # it reaches into the next batch
        (len(BATCH) - 12 - 1, "CRC"),
        (49, "CRC"),
        (48, "shorter than its head"),
        (5, "shorter than its head"),
        (0, "shorter than its head"),
        (-1, "shorter than its head"),
        (-(2**31), "shorter than its head"),
    ],
)
def test_a_length_that_is_wrong(length: int, problem: str) -> None:
    with pytest.raises(CorruptRecord, match=f"at offset 100: .*{problem}"):
        decoded(BATCH[:8] + struct.pack(">i", length) + BATCH[12:] + bytes(written(102, b"b")))


@pytest.mark.parametrize("length", [len(BATCH) - 12 + 1, 2**31 - 1])
def test_a_length_beyond_the_answer_is_a_batch_that_is_cut_off(length: int) -> None:
    damaged = BATCH[:8] + struct.pack(">i", length) + BATCH[12:]
    assert offsets(decoded(damaged)) == []
    found = decoded(bytes(written(90, b"before")) + damaged)
    assert (values(found), found.reached) == ([b"before"], 91)


@pytest.mark.parametrize("base_offset", [-1, -(2**63), 2**63 - 2])
def test_a_base_offset_that_no_batch_can_have(base_offset: int) -> None:
    with pytest.raises(CorruptRecord):
        decoded(struct.pack(">q", base_offset) + BATCH[8:])
    assert offsets(decoded(struct.pack(">q", END) + BATCH[8:])) == []  # behind all that can be wanted


def test_batches_that_overlap_or_go_back() -> None:
    for second in (101, 100, 5):
        with pytest.raises(CorruptRecord, match=f"offset {second}: the batch overlaps .* expected 102 or more"):
            decoded(BATCH + bytes(written(second, b"b")))
    assert offsets(decoded(BATCH + bytes(written(102, b"b")))) == [100, 101, 102]


@pytest.mark.parametrize(
    ("magic", "problem"), [(0, "CRC"), (1, "CRC"), (3, "0 to 2, found magic 3.*disk"), (-1, "0 to 2.*disk")]
)
def test_other_formats_are_refused_with_what_to_do(magic: int, problem: str) -> None:
    batch = bytearray(BATCH)
    batch[16] = magic & 0xFF
    with pytest.raises(CorruptRecord, match=f"offset 100: .*{problem}"):
        decoded(with_crc(batch))


LYING = [
    *((ATTRIBUTES_AT, ">h", compression) for compression in (5, 7, GZIP, SNAPPY, LZ4, ZSTD)),
    *((ATTRIBUTES_AT + 2, ">i", last_offset_delta) for last_offset_delta in (0, -1, -(2**31))),
    *((ATTRIBUTES_AT + 36, ">i", count) for count in (0, 1, 3, -1, 2**31 - 1)),
]


@pytest.mark.parametrize(("at", "form", "value"), LYING)
def test_fields_of_the_head_that_lie_with_a_right_crc(at: int, form: str, value: int) -> None:
    batch = bytearray(BATCH)
    struct.pack_into(form, batch, at, value)
    with pytest.raises(CorruptRecord, match="at offset 100") as raised:
        decoded(with_crc(batch))
    assert not isinstance(raised.value, ChecksumMismatch)


def record(body: bytes) -> bytes:
    """With its length, below 64 bytes, before it."""
    return bytes([2 * len(body)]) + body


PLAIN = bytes([0, 0, 0, 1, 2, ord("v"), 0])  # attributes, times, offset, no key, value "v", no headers
LONGEST = b"\xff" * 9
ENDLESS = b"\xff" * 10


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("no record", b""),
        ("a length below 0", b"\x01"),
        ("a length beyond the batch", b"\x10" + PLAIN),
        ("a length short of the batch", b"\x0c" + PLAIN),
        ("a long length beyond the batch", b"\xfe\xff\xff\xff\x0f" + PLAIN),
        ("a length that is cut off", b"\x80"),
        ("a length without an end", ENDLESS),
        ("a length below 0, in many bytes", LONGEST + b"\x01"),
        ("an empty record", b"\x00"),
        ("attributes only", record(b"\x00")),
        ("times without an end", record(b"\x00" + ENDLESS)),
        ("times that are cut off", record(b"\x00\xff")),
        ("an offset below 0", record(b"\x00\x00\x01\x01\x01\x00")),
        ("an offset behind its batch", record(b"\x00\x00\x02\x01\x01\x00")),
        ("a large offset", record(b"\x00\x00\xfe\xff\xff\xff\x0f\x01\x01\x00")),
        ("a key beyond its record", record(b"\x00\x00\x00\x04k\x01\x00")[:-1] + b"\x00"),
        ("a key as large as can be", record(b"\x00\x00\x00" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\x01\x00")),
        ("a value beyond its record", record(b"\x00\x00\x00\x01\x06vv")),
        ("no number of headers", record(b"\x00\x00\x00\x01\x02v")),
        ("headers below 0", record(b"\x00\x00\x00\x01\x02v\x01")),
        ("more headers than bytes", record(b"\x00\x00\x00\x01\x02v\x02")),
        ("many more headers than bytes", record(b"\x00\x00\x00\x01\x02v\xfe\xff\xff\xff\x0f")),
        ("a header without a key", record(b"\x00\x00\x00\x01\x02v\x02\x01\x01")),
        ("a header's key beyond its record", record(b"\x00\x00\x00\x01\x02v\x02\x7e\x01")),
        ("a header's value beyond its record", record(b"\x00\x00\x00\x01\x02v\x02\x00\x7e")),
        ("a header's key without an end", record(b"\x00\x00\x00\x01\x02v\x02" + ENDLESS)),
        ("a header's value without an end", record(b"\x00\x00\x00\x01\x02v\x02\x00" + ENDLESS)),
        ("a header's value below 0, in many bytes", record(b"\x00\x00\x00\x01\x02v\x02\x00" + LONGEST)),
        ("bytes behind the headers", record(PLAIN + b"\x00")),
        ("bytes behind the record", record(PLAIN) + b"\x00"),
        ("another record behind the last", record(PLAIN) * 2),
    ],
)  # fmt: skip
@pytest.mark.parametrize("behind", [b"", BATCH])
def test_records_that_contradict_themselves(name: str, body: bytes, behind: bytes) -> None:
    assert values(decoded(with_body(record(PLAIN)))) == [b"v"]  # what they all come from
    with pytest.raises(CorruptRecord, match=r"at offset 40: (the batch|a record's offset)") as raised:
        decoded(with_body(body, base_offset=40) + behind)
    assert not isinstance(raised.value, ChecksumMismatch)
    assert raised.value.hint


def test_offsets_that_repeat_or_go_back() -> None:
    first, second = (record(bytes([0, 0, 2 * delta, 1, 1, 0])) for delta in (1, 2))
    assert offsets(decoded(with_body(first + second, count=2, last_delta=2))) == [1, 2]
    for body in (first + first, second + first):
        with pytest.raises(CorruptRecord, match="a record's offset is not behind the one before"):
            decoded(with_body(body, count=2, last_delta=2))


def test_a_null_in_another_spelling_is_a_null() -> None:
    """Java takes every length below 0 for a null; -1 is what everyone writes."""
    body = record(b"\x00\x00\x00\x03\x05\x02\x02h\x07")
    assert rows_of(decoded(with_body(body)).records)[0]["headers"] == [("h", None)]
    assert values(decoded(with_body(body))) == [None]


@pytest.mark.parametrize("compression", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_compressed_body_that_is_cut_off_or_damaged(compression: int) -> None:
    whole = bytes(written(0, b"a value that is worth it " * 20, compression=compression))[HEADER_BYTES:]
    assert len(values(decoded(with_body(whole, compression=compression)))) == 1
    for stored in (whole[:-1], whole[: len(whole) // 2], whole[:1], b"", b"junk" + whole, whole + b"\xff"):
        with pytest.raises(CorruptRecord, match="at offset 9"):
            decoded(with_body(stored, compression=compression, base_offset=9))


def peak_bytes(batch: bytes, limits: BatchLimits, problem: str, offset: int = 0) -> int:
    """What Python takes until `problem` is found at `offset`."""
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord, match=f"at offset {offset}: .*{problem}"):
            decoded(batch, limits=limits)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compression", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_bomb_never_unfolds_and_the_limit_is_the_last_size_that_passes(compression: int) -> None:
    limits = BatchLimits(max_batch_bytes=1_000_000)
    head = len(bytes(written(0, bytes(990_000)))) - HEADER_BYTES - 990_000
    for size in (50_000_000, 1_000_001 - head):
        bomb = bytes(written(0, bytes(size), compression=compression))
        assert peak_bytes(bomb, limits, "larger than .* expected at most 1000000 bytes") < 10_000_000
    largest = bytes(1_000_000 - head)
    assert values(decoded(bytes(written(0, largest, compression=compression)), limits=limits)) == [largest]


RECORD = bytes(written(0, b"v" * 200))[HEADER_BYTES:]
BLOCK = bytes([len(RECORD) & 0x7F | 0x80, len(RECORD) >> 7])


def test_forms_of_compression_that_other_clients_write() -> None:
    zstd_stream = zstandard.ZstdCompressor().compressobj()
    forms = [
        (LZ4, lz4.frame.compress(RECORD, content_checksum=True, store_size=False, block_linked=False)),
        (LZ4, lz4.frame.compress(RECORD[:50]) + lz4.frame.compress(RECORD[50:])),
        (ZSTD, zstd_stream.compress(RECORD) + zstd_stream.flush()),
        (ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(RECORD)),
        (SNAPPY, BLOCK + literals(RECORD)),  # librdkafka: one block, no frame
        (SNAPPY, b"\x82SNAPPY\x00" + bytes(8) + framed(RECORD[:9]) + framed(RECORD[9:])),
    ]
    for compression, stored in forms:
        assert values(decoded(with_body(stored, compression=compression))) == [b"v" * 200]


def literals(text: bytes) -> bytes:
    """The elements of a snappy block that compresses nothing: literals of at most 60 bytes."""
    parts = (text[at : at + 60] for at in range(0, len(text), 60))
    return b"".join(bytes([(len(part) - 1) << 2]) + part for part in parts)


def framed(text: bytes) -> bytes:
    length = bytes([len(text)]) if len(text) < 128 else bytes([len(text) & 0x7F | 0x80, len(text) >> 7])
    block = length + literals(text)
    return struct.pack(">i", len(block)) + block


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1])
def test_a_snappy_frame_whose_length_lies(length: int) -> None:
    stored = b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", length) + BLOCK + literals(RECORD)
    with pytest.raises(CorruptRecord, match="cannot be decompressed; expected snappy"):
        decoded(with_body(stored, compression=SNAPPY))


def failing_at(base_offset: int, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder of many batches raises `error` over this one."""

    def failing(some: Sequence[Batch], bodies: Sequence[bytes | memoryview], most_headers: int) -> object:
        if any(batch.base_offset == base_offset for batch in some):
            raise error
        return record_columns(some, bodies, most_headers)

    monkeypatch.setattr(batches, "record_columns", failing)


@pytest.mark.parametrize("guilty", [0, 2, 3])
def test_a_failure_that_nobody_thought_of_names_its_batch(monkeypatch: pytest.MonkeyPatch, guilty: int) -> None:
    """As damage that is thought of: what lies before it can be had by ending there."""
    failing_at(10 * guilty, ValueError("exceeds the limit of 4300 digits"), monkeypatch)
    log = log_of([written(10 * number, b"%d" % number) for number in range(4)])
    with pytest.raises(CorruptRecord, match=r"makes its decoder fail.*ValueError: exceeds") as raised:
        decoded(log)
    assert raised.value.offset == 10 * guilty
    assert values(decoded(log, span(0, 10 * guilty))) == [b"%d" % at for at in range(guilty)]


def test_snappy_blocks_of_nothing_are_handed_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed. That of other streams each byte is, tests/sources/rocketmq/test_bodies.py shows."""
    nothing = struct.pack(">i", 1) + b"\0"
    stored, handed_bytes = b"\x82SNAPPY\x00" + bytes(8) + nothing * 5000 + framed(RECORD), 0
    block = pa.decompress

    def counted_block(data: memoryview, **options: Any) -> object:
        nonlocal handed_bytes
        handed_bytes += len(data)
        return block(data, **options)

    monkeypatch.setattr(pa, "decompress", counted_block)
    assert values(decoded(with_body(stored, compression=SNAPPY))) == [b"v" * 200]
    assert 0 < handed_bytes <= len(stored)


def of_headers(count: int, claimed: int | None = None, base_offset: int = 0) -> bytes:
    """A batch of one record with `count` empty headers, compressed to next to nothing."""
    body = bytes([0, 0, 0, 1, 1]) + number(count if claimed is None else claimed) + b"\0\1" * count
    stored = gzip.compress(number(len(body)) + body)
    return with_body(stored, compression=GZIP, base_offset=base_offset)


def number(value: int) -> bytes:
    """A varint of 0 or more."""
    zigzag, written = 2 * value, b""
    while zigzag >= 0x80:
        written, zigzag = written + bytes([zigzag & 0x7F | 0x80]), zigzag >> 7
    return written + bytes([zigzag])


def of_records(count: int, claimed: int | None = None) -> bytes:
    """A batch of as small records, each of 7 bytes."""
    stored = gzip.compress(record(b"\0\0\0\1\1\0") * count)
    return with_body(stored, count=count if claimed is None else claimed, compression=GZIP, last_delta=2**31 - 1)


SMALL = BatchLimits(max_cost_bytes=1_000_000)
MOST_RECORDS, MOST_HEADERS = 1_000_000 // RECORD_COST_BYTES, 1_000_000 // HEADER_COST_BYTES


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        (of_headers(1_000_000), f"1000000 headers at once; at most {MOST_HEADERS}"),
        (of_headers(MOST_HEADERS + 1), "at most"),
        (of_headers(1_000_000, claimed=2**40), "number of headers does not fit"),
        (of_records(500_000), f"500000 records at once; at most {MOST_RECORDS}"),
        (of_records(10, claimed=2**31 - 1), f"2147483647 records at once; at most {MOST_RECORDS}"),
        (of_records(10, claimed=MOST_RECORDS), "has fewer records than its count"),
    ],
    ids=["headers", "one header", "headers claimed", "records", "records claimed", "a few records claimed"],
)
def test_what_records_and_headers_take_is_limited_before_it_is_taken(batch: bytes, problem: str) -> None:
    """They compress to a few kB. Beside the body's own bytes nothing is allocated for them."""
    assert peak_bytes(batch, SMALL, problem) < 12_000_000
    (row,) = rows_of(decoded(of_headers(MOST_HEADERS), limits=SMALL).records)
    assert len(row["headers"]) == MOST_HEADERS


def test_a_batch_that_takes_too_much_does_not_hold_back_those_before_it() -> None:
    log = b"".join(
        [bytes(written(0, b"a", b"b")), of_headers(MOST_HEADERS + 1, base_offset=2), bytes(written(3, b"c"))]
    )
    found = batches.decode_sound(log, ALL, (), COMMITTED, SMALL)
    while found.error is None:
        assert (offsets(found), found.reached) in (([0, 1], 2), ([], 2))
        found = batches.decode_sound(log, OffsetRange(found.reached, END), (), COMMITTED, SMALL)
    assert found.error.offset == 2
    damage = batches.damage_at(log, OffsetRange(Offset(2), END), found)
    assert damage is not None
    assert damage.covered == span(2, 3)


def test_a_lack_of_memory_for_one_batch_names_that_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer are tried first, so what is before it comes."""
    failing_at(30, MemoryError("cannot allocate"), monkeypatch)
    log, at, read = log_of([written(10 * at, b"%d" % at) for at in range(5)]), 0, []
    with pytest.raises(OutOfMemory, match=r"at offset 30: .*cannot allocate.*more memory"):
        while at < 50:
            found = decoded(log, span(at, 50))
            read += offsets(found)
            at = found.reached
    assert read == [0, 10, 20]
