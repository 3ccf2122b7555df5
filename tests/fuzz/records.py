"""Records of a commit log, whole: any value in any property and field, any byte changed, under a right CRC or not."""

import functools
import random
import struct
import tempfile
from dataclasses import replace
from pathlib import Path

import lz4.frame
import zstandard

from sources.errors import CorruptRecord
from sources.master import Damage
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.columns import codec, restore
from sources.rocketmq.format import commitlog
from sources.rocketmq.format.bodies import Compression, body_crc
from sources.rocketmq.format.commitlog import Message
from sources.rocketmq.format.layout import V1, V2, Host, Limits
from sources.rocketmq.session.stream_chunks import ChunkReader, LogEnd
from tests import truth
from tests.fuzz.mutations import TIMES_AT_BOUNDS_MS, in_pieces, mutated, text
from tests.sources.rocketmq import plain_decoder
from tests.sources.rocketmq.records import message

LIMITS = Limits(max_record_bytes=1 << 20, max_body_bytes=1 << 20)
NAMES = ("DELAY", "TAGS", "KEYS", "UNIQ_KEY", "INNER_NUM", "TIMER_DELAY_MS", "__CRC32#", "PGROUP", "x")
TOPICS = ("T1", "SCHEDULE_TOPIC_XXXX", "%RETRY%g", "RMQ_SYS_TRANS_HALF_TOPIC", "", "\u00e9")
_EMPTY_FRAMES = (lz4.frame.compress(b""), zstandard.ZstdCompressor().compress(b""), b"\x50\x2a\x4d\x18\0\0\0\0")


@functools.cache
def stored_by_brokers() -> tuple[Message, ...]:
    """The messages of real brokers' logs."""
    found: list[Message] = []
    for version in truth.VERSIONS:
        with tempfile.TemporaryDirectory() as folder:
            fixture = truth.extract(version, Path(folder))
            for row in fixture.rows[:2000]:
                at = row["physical_offset"]
                record = commitlog.decode(fixture.log, at, Offset(at))
                if isinstance(record, Message) and record.size < 8192:
                    found.append(record)
    return tuple(found)


def made(rng: random.Random) -> Message:
    """A message that a broker stores of a producer who means no good."""
    ipv6 = rng.choice((0, 0x10, 0x20, 0x30))
    compressed = rng.choice((0, 0, 0x1, 0x101, 0x201, 0x301, 0x701))
    width = {False: 4, True: 16}
    return message(
        magic=rng.choice((V1, V2)),
        flag=rng.choice((0, -(2**31), 2**31 - 1)),
        queue_offset=rng.choice((0, -(2**63), 2**63 - 1)),
        sys_flag=ipv6 | compressed | rng.choice((0, 0x8, 0x80)),
        born_timestamp_ms=rng.choice((0, -1, 1_795_000_000_000, *TIMES_AT_BOUNDS_MS)),
        store_timestamp_ms=rng.choice((0, 1_795_000_000_000, *TIMES_AT_BOUNDS_MS)),
        born_host=Host(rng.randbytes(width[bool(ipv6 & 0x10)]), rng.choice((0, -1, 10911))),
        store_host=Host(rng.randbytes(width[bool(ipv6 & 0x20)]), rng.choice((0, -1, 10911))),
        body=_body(rng, compressed),
        topic=rng.choice(TOPICS),
        properties=_properties(rng),
    )


def _body(rng: random.Random, compressed: int) -> bytes:
    if rng.random() < 0.2:
        return rng.choice(_EMPTY_FRAMES) * rng.choice((1, 2, 3000))
    body = rng.choice((b"", b"hello", bytes(5000), rng.randbytes(200), b'{"a":1}'))
    if compressed not in (0x101, 0x201, 0x301):
        return body
    return mutated(commitlog.compress(body, Compression(compressed & 0x700)), rng, rng.choice((0, 3)))


def _properties(rng: random.Random) -> bytes:
    pairs = b"".join(
        rng.choice(NAMES).encode() + rng.choice((b"\x01", b"\x01", b"\x02", b"")) + text(rng).encode("utf-8", "replace")
        + rng.choice((b"\x02", b"\x02", b"\x01", b"\xff", b"\xed\xa0\x80"))
        for _ in range(rng.randint(0, 5))
    )  # fmt: skip
    return pairs[: 2**15 - 1]


def check(rng: random.Random) -> None:
    """Rows as the plain decoder has them, up to the first damaged record, and that one's error, which is thought of."""
    data, start = _log(rng)
    end = Offset(start + len(data))
    found = codec.decode_sound(data, start, end, LIMITS)
    found.records.validate(full=True)
    rows, at, error = _plainly(data, start)
    assert plain_decoder.rows_of(found.records) == rows
    assert found.end == at
    assert str(found.error) == str(error)
    assert "makes its decoder fail" not in str(found.error)
    assert restore.encode(found.records) == data[: at - start]
    if rng.random() < 0.3:
        _check_past_damage(data, start, rng)


def _log(rng: random.Random) -> tuple[bytes, Offset]:
    start = at = rng.choice((0, 1000, 2**40))
    parts: list[bytes] = []
    for _ in range(rng.randint(1, 8)):
        one = made(rng) if rng.random() < 0.7 else rng.choice(stored_by_brokers())
        stored = _encoded(replace(one, offset=Offset(at)))
        parts.append(_with_crc(mutated(stored, rng, 2), rng) if rng.random() < 0.1 else stored)
        at += len(parts[-1])
    data = b"".join(parts)
    return (mutated(data, rng) if rng.random() < 0.3 else data), Offset(start)


def _encoded(one: Message) -> bytes:
    """A V1 record whose topic does not fit keeps to V2."""
    return commitlog.encode(one if one.magic == V2 or len(one.topic.encode()) < 128 else replace(one, magic=V2))


def _with_crc(stored: bytes, rng: random.Random) -> bytes:
    """Sometimes with the CRC of the body that it has now, and with a size that says how long it is."""
    if len(stored) < 92 or rng.random() < 0.5:
        return stored
    (length,) = struct.unpack_from(">i", stored, 84)
    body = stored[88 : 88 + max(length, 0)]
    return struct.pack(">i", len(stored)) + stored[4:8] + struct.pack(">i", body_crc(body)) + stored[12:]


def _plainly(data: bytes, start: Offset) -> tuple[list[plain_decoder.Row], int, CorruptRecord | None]:
    rows: list[plain_decoder.Row] = []
    at = 0
    while len(data) - at >= 8:
        try:
            record = commitlog.decode(data, at, Offset(start + at), LIMITS)
        except CorruptRecord as error:
            return rows, start + at, error
        if record is None:
            break
        rows.append(plain_decoder.row_of(record, LIMITS))
        at += record.size
    return rows, start + at, None


def _check_past_damage(data: bytes, start: Offset, rng: random.Random) -> None:
    """All of the bytes come, as records that give them back, or as damage with an error."""
    end = Offset(start + len(data))
    reader = ChunkReader(
        chunk_bytes=rng.choice((1, 300, 1 << 20)), limits=LIMITS, log_end=LogEnd(end, ask=lambda: end), past_damage=True
    )
    at = start
    for piece in reader.read(iter(in_pieces(data, rng)), OffsetRange(start, end), boundary=True):
        assert piece.covered.start == at
        at = piece.covered.end
        if isinstance(piece, Damage):
            assert isinstance(piece.error, CorruptRecord)
        else:
            assert restore.encode(piece.records) == piece.raw
    assert at == end
