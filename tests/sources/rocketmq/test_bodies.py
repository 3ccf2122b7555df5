import _ctypes
import hashlib
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from sources.decoding.columns import read_only
from sources.rocketmq.columns import body_crcs
from sources.rocketmq.columns.body_crcs import CFunction, found_in
from sources.rocketmq.format.bodies import Compression, body_crc, compress, decompress
from sources.rocketmq.format.layout import Limits
from tests import truth

BODY = b"a body that is worth it " * 400
ZLIB, LZ4, ZSTD = Compression.ZLIB, Compression.LZ4, Compression.ZSTD


def zstd_stream(body: bytes) -> bytes:
    """As ZstdOutputStream of Java writes it: the frame's header has no content size."""
    writer = zstandard.ZstdCompressor().compressobj()
    return writer.compress(body[: len(body) // 2]) + writer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) + (
        writer.compress(body[len(body) // 2 :]) + writer.flush()
    )  # fmt: skip


def test_the_crc_of_a_brokers_body() -> None:
    assert body_crc(b"hello") == 0x3610A686
    assert body_crc(b"") == 0
    assert body_crc(b"a") == 0xE8B7BE43 & 0x7FFFFFFF  # CRC-32 of "a" has its top bit set


@pytest.mark.parametrize(
    ("sys_flag", "stored"),
    [
        (0x0, BODY),
        (0x300, BODY),  # type bits without the compressed bit mean nothing
        (0x1, zlib.compress(BODY)),
        (0x301, zlib.compress(BODY, 9)),
        (0x301 | 0x30 | 0x8, zlib.compress(BODY)),
        (0x301, zlib.compress(BODY) + b"what follows the stream, Java does not read"),
        (0x101, lz4.frame.compress(BODY)),
        (0x101, lz4.frame.compress(BODY, content_checksum=True, store_size=False)),
        (0x101, lz4.frame.compress(BODY[:100]) + lz4.frame.compress(BODY[100:])),
        (0x201, zstandard.ZstdCompressor().compress(BODY)),
        (0x201, zstd_stream(BODY)),
        (0x201, zstd_stream(BODY[:100]) + zstandard.ZstdCompressor(write_checksum=True).compress(BODY[100:])),
    ],
)
def test_a_body_as_a_producer_may_send_it(sys_flag: int, stored: bytes) -> None:
    assert decompress(stored, sys_flag) == BODY
    assert decompress(memoryview(stored), sys_flag, Limits(max_body_bytes=len(BODY))) == BODY


@pytest.mark.parametrize("kind", list(Compression))
@pytest.mark.parametrize("body", [b"x", BODY, bytes(1_000_000), hashlib.sha512(b"").digest() * 3000])
def test_every_kind_comes_back(kind: Compression, body: bytes) -> None:
    assert decompress(compress(body, kind), kind.sys_flag) == body


@pytest.mark.parametrize("sys_flag", [0x1, 0x101, 0x201, 0x301, 0x401, 0x501, 0x601, 0x701])
def test_an_empty_body_is_empty_whatever_its_flags_and_kinds_that_do_not_exist_are_no_body(sys_flag: int) -> None:
    assert decompress(b"", sys_flag) == b""
    assert decompress(zlib.compress(BODY), sys_flag) == (BODY if sys_flag in (0x1, 0x301) else None)


@pytest.mark.parametrize("kind", list(Compression))
def test_a_body_that_is_not_what_it_claims(kind: Compression) -> None:
    whole = compress(BODY, kind)
    behind = () if kind is ZLIB else (whole + b"junk",)
    for stored in (b"hello", whole[:-1], whole[: len(whole) // 2], whole[:1], b"\xff" + whole[1:], *behind):
        assert decompress(stored, kind.sys_flag) is None


@pytest.mark.parametrize("kind", list(Compression))
def test_a_bomb_never_unfolds_and_the_limit_is_the_last_size_that_passes(kind: Compression) -> None:
    limits, stored = Limits(max_body_bytes=1_000_000), compress(bytes(40_000_000), kind)
    tracemalloc.start()
    assert decompress(stored, kind.sys_flag, limits) is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8_000_000
    assert decompress(compress(bytes(1_000_000), kind), kind.sys_flag, limits) == bytes(1_000_000)
    assert decompress(compress(bytes(1_000_001), kind), kind.sys_flag, limits) is None


NOTHING = {"lz4": lz4.frame.compress(b""), "zstd": zstandard.ZstdCompressor().compress(b"")}
ONE_BYTE = {"lz4": lz4.frame.compress(b"a"), "zstd": zstandard.ZstdCompressor().compress(b"a")}


def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes decompressors are given copies of, a number for each call."""
    sizes: list[int] = []
    chunk, reader = lz4.frame.decompress_chunk, pa.BufferReader

    def counting_chunk(context: object, data: bytes | memoryview, **options: Any) -> Any:
        found = chunk(context, data, **options)
        sizes.append(len(data) if isinstance(data, bytes) else found[1])
        return found

    def counting_reader(data: bytes) -> Any:
        sizes.append(len(data))
        return reader(data)

    monkeypatch.setattr(lz4.frame, "decompress_chunk", counting_chunk)
    monkeypatch.setattr(pa, "BufferReader", counting_reader)
    return sizes


@pytest.mark.parametrize("frames", [NOTHING, ONE_BYTE], ids=["nothing", "one byte"])
@pytest.mark.parametrize("kind", [LZ4, ZSTD])
@pytest.mark.parametrize("count", [1000, 4000])
def test_frames_of_nothing_cost_what_they_are_long(
    monkeypatch: pytest.MonkeyPatch, kind: Compression, frames: dict[str, bytes], count: int
) -> None:
    """The work is counted, not timed: each byte is given to a decompressor once."""
    frame = frames[kind.name.lower()]
    stored, sizes = frame * count + compress(b"end", kind), copied(monkeypatch)
    body = b"a" * count if frames is ONE_BYTE else b""
    assert decompress(stored, kind.sys_flag) == body + b"end"
    assert 0 < sum(sizes) <= len(stored)
    assert len(sizes) <= count + 3


def test_what_a_decompressor_raises_leaves_the_body_as_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise SystemError("returned NULL without setting an exception")

    monkeypatch.setattr(lz4.frame, "decompress_chunk", broken)
    assert decompress(compress(BODY, LZ4), LZ4.sys_flag) is None


def test_a_machine_without_memory_makes_no_body_null(monkeypatch: pytest.MonkeyPatch) -> None:
    def starved(*_: object) -> None:
        raise OSError("ZSTD decompress failed: Allocation error : not enough memory")

    monkeypatch.setattr(pa, "CompressedInputStream", starved)
    with pytest.raises(MemoryError, match="Allocation error"):
        decompress(compress(BODY, ZSTD), ZSTD.sys_flag)


def test_the_kinds_in_a_brokers_log(fixture_log: truth.Fixture) -> None:
    kinds = {row["sys_flag"] & 0x701 for row in fixture_log.rows if not row.get("blank")}
    assert kinds == {0, 0x1, 0x101, 0x201, 0x301}


# CRCs of many bodies


OF_ISAL = found_in(isal_zlib.__file__)
WAYS = pytest.mark.parametrize("crc32", [OF_ISAL, None], ids=["called from the loop", "one by one"])


def crcs(data: bytes, spans: list[tuple[int, int]], crc32: CFunction | None) -> list[int]:
    starts, ends = np.array(spans, np.int64).reshape(-1, 2).T.copy()
    return list(body_crcs.body_crcs(read_only(memoryview(data)), starts, ends, crc32))


def test_isal_has_the_function_here() -> None:
    assert OF_ISAL is not None


@WAYS
@given(st.lists(st.binary(max_size=700), max_size=6), st.binary(max_size=9))
def test_each_span_has_the_crc_that_zlib_gives_it(crc32: CFunction | None, bodies: list[bytes], gap: bytes) -> None:
    ends = np.cumsum([len(gap + body) for body in bodies], dtype=np.int64).tolist()
    spans = [(end - len(body), end) for end, body in zip(ends, bodies, strict=True)]
    data = b"".join(gap + body for body in bodies)
    assert crcs(data, spans, crc32) == [zlib.crc32(body) & 0x7FFFFFFF for body in bodies]


def test_a_library_without_the_function_gives_none(tmp_path: Path) -> None:
    (tmp_path / "no.so").write_bytes(b"no library")
    assert found_in(_ctypes.__file__) is None
    assert found_in(str(tmp_path / "no.so")) is None


def test_a_function_that_gives_something_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_crcs, "_NAME", "crc32_ieee")  # ISA-L's, not reflected
    assert found_in(isal_zlib.__file__) is None
