"""Messages of formats 0 and 1, made and read by kafka-python: another implementation."""

import struct
import zlib
from collections.abc import Sequence

import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from sources.errors import ChecksumMismatch, CorruptRecord
from sources.kafka.format.batches import BatchLimits, damage_at, decode_sound
from tests.sources.kafka.batches import (
    ALL,
    GZIP,
    LZ4,
    NONE,
    NOW_MS,
    SNAPPY,
    UNCOMMITTED,
    decoded,
    offsets,
    read_by_kafka_python,
    rows_of,
    values,
    written,
)
from tests.sources.kafka.test_damage import peak_bytes
from tests.spans import span

Sent = tuple[bytes | None, bytes | None]
SENT: tuple[Sent, ...] = ((b"k", b"one"), (None, b"two"), (b"k", None), (b"", b""))
ATTRIBUTES_AT, TIMESTAMP_AT, LOG_APPEND_TIME = 17, 18, 0x08


def old(first: int, sent: Sequence[Sent] = SENT, magic: int = 1, compression: int = NONE) -> bytes:
    """Messages at the offsets `first`, …; with a compression in one wrapper, as a broker stores it."""
    builder = LegacyRecordBatchBuilder(magic, compression, 1 << 28)
    inner = 0 if magic == 1 and compression != NONE else first
    for number, (key, value) in enumerate(sent):
        builder.append(inner + number, NOW_MS + number, key, value)
    stored = bytearray(builder.build())
    if compression != NONE:
        struct.pack_into(">q", stored, 0, first + len(sent) - 1)
    return bytes(stored)


def with_crc(message: bytes | bytearray) -> bytes:
    return bytes(message[:12]) + struct.pack(">I", zlib.crc32(message[16:])) + bytes(message[16:])


FORMS = [(0, NONE), (0, GZIP), (0, SNAPPY), (1, NONE), (1, GZIP), (1, SNAPPY), (1, LZ4)]


@pytest.mark.parametrize(("magic", "compression"), FORMS)
def test_messages_are_rows_like_any(magic: int, compression: int) -> None:
    log = old(100, magic=magic, compression=compression) + old(104, SENT[:1], magic=magic) + old(110, magic=magic)
    found = decoded(log)
    assert rows_of(found.records) == list(read_by_kafka_python(log))
    assert (found.reached, found.epoch) == (114, None)
    upgraded = log + bytes(written(120, b"new", epoch=3)) + old(121, magic=magic)  # as that of a cluster
    assert offsets(decoded(upgraded)) == [*offsets(found), 120, 121, 122, 123, 124]


@pytest.mark.parametrize(
    ("start", "end", "expected"), [(1, 3, [1, 2]), (0, 2, [0, 1]), (3, 9, [3, 6, 7, 8]), (5, 7, [6])]
)
@pytest.mark.parametrize(("magic", "compression"), FORMS)
def test_a_part_of_them(magic: int, compression: int, start: int, end: int, expected: list[int]) -> None:
    """Also where a wrapper, which says the offset of its last message, begins before the end."""
    log = old(0, magic=magic, compression=compression) + old(6, SENT, magic=magic, compression=compression)
    found = decoded(log, span(start, end))
    assert offsets(found) == expected
    assert found.reached >= end


def test_the_brokers_own_time_is_that_of_the_wrapper() -> None:
    stored = bytearray(old(5, compression=GZIP))
    stored[ATTRIBUTES_AT] |= LOG_APPEND_TIME
    struct.pack_into(">q", stored, TIMESTAMP_AT, NOW_MS + 77)
    rows = rows_of(decoded(with_crc(stored)).records)
    assert {(row["timestamp"], row["timestamp_type"]) for row in rows} == {(NOW_MS + 77, "log_append_time")}


def test_a_wrapper_that_compaction_took_messages_of() -> None:
    """The distances of the inner offsets are what is left."""
    builder = LegacyRecordBatchBuilder(1, GZIP, 1 << 20)
    for offset in (0, 3, 4):
        builder.append(offset, NOW_MS, None, b"%d" % offset)
    stored = bytearray(builder.build())
    struct.pack_into(">q", stored, 0, 50)
    assert offsets(decoded(bytes(stored))) == [46, 49, 50]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", [NONE, GZIP])
def test_every_byte_of_a_message_is_checked(magic: int, compression: int) -> None:
    """But for its offset, which no checksum covers."""
    sound = old(7, magic=magic, compression=compression)[: None if compression else len(old(7, SENT[:1], magic))]
    for at in range(8, len(sound)):
        damaged = bytearray(sound)
        damaged[at] ^= 1
        try:
            assert offsets(decoded(bytes(damaged))) == []  # cut off: its length says so
            assert at < 12
        except CorruptRecord as error:
            assert error.offset is not None


@pytest.mark.parametrize(
    "message",
    [
        with_crc(old(0, SENT[:1])[:-1]),
        with_crc(old(0, SENT[:1])[:18]),
        with_crc(old(0, SENT[:1])[:26] + b"\x7f\xff\xff\xff" + old(0, SENT[:1])[30:]),
    ],
    ids=["a value cut off", "no fields", "a key beyond the message"],
)  # fmt: skip
def test_a_message_that_contradicts_itself_under_a_right_crc(message: bytes) -> None:
    stored = message[:8] + struct.pack(">i", len(message) - 12) + message[12:]
    with pytest.raises(CorruptRecord, match="at offset 0: a message of an old format contradicts itself"):
        decoded(stored)


def test_messages_that_go_back() -> None:
    with pytest.raises(CorruptRecord, match=r"offset 3: .* overlaps .* expected 4 or more"):
        decoded(old(0) + old(3, SENT[:1]))


@pytest.mark.parametrize(("magic", "compression"), FORMS)
def test_what_is_sound_before_a_damaged_message_comes(magic: int, compression: int) -> None:
    bad = bytearray(old(4, magic=magic, compression=compression))
    bad[-1] ^= 1
    if compression == NONE:
        bad = bad[len(old(4, SENT[:3], magic)) :]
    log, sound = old(0, magic=magic) + bytes(bad), old(20, magic=magic, compression=compression)
    found = decode_sound(log + sound, ALL, (), UNCOMMITTED)
    assert (offsets(found), found.reached) == ([0, 1, 2, 3], 4)
    assert isinstance(found.error, ChecksumMismatch)
    behind = span(4, 30)
    damage = damage_at(log + sound, behind, found)
    assert damage is not None
    assert (damage.covered, bytes(damage.raw or b"")) == (span(4, 20), bytes(bad))
    assert damage_at(log, behind, found) is None


def test_a_bomb_of_messages_never_unfolds() -> None:
    """They compress to next to nothing; the limit counts what each takes."""
    stored = old(0, ((None, b""),) * 5_000, compression=GZIP)
    limits = BatchLimits(max_batch_bytes=500_000)
    assert peak_bytes(stored, limits, "more than 500000 bytes", offset=4_999) < 2 * 500_000
    assert len(values(decoded(stored))) == 5_000


def test_of_many_messages_only_so_many_are_read_at_once() -> None:
    log = old(0, ((None, b"v" * 100),) * 1000)
    limits, at, read = BatchLimits(max_decompressed_bytes=50_000), 0, []
    while at < 1000:
        found = decoded(log, span(at, 1000), limits=limits)
        assert 0 < len(found.records) < 200
        read += offsets(found)
        at, log = found.reached, old(found.reached, ((None, b"v" * 100),) * (1000 - found.reached))
    assert read == list(range(1000))
