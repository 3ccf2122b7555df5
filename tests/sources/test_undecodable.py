import gzip
import tracemalloc

import lz4.frame
import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sources.decoding.columns import cut
from sources.decoding.compressed_stream import PIECE_BYTES, decompressed
from sources.decoding.undecodable import as_damage, placed, up_to_damage
from sources.errors import ChecksumMismatch, CorruptRecord, LogtwinError


def test_an_unexpected_failure_is_damage_with_an_offset() -> None:
    with (
        pytest.raises(CorruptRecord, match=r"offset 7.*makes its decoder fail.*OverflowError: too large") as raised,
        as_damage(7),
    ):
        raise OverflowError("too large")
    assert isinstance(raised.value.__cause__, OverflowError)
    assert "on_loss = record" in (raised.value.hint or "")


@pytest.mark.parametrize(
    "error", [ChecksumMismatch("crc"), MemoryError(), OSError(), ImportError(), KeyboardInterrupt(), SystemExit()]
)
def test_named_errors_and_failures_of_the_machine_stay_what_they_are(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised, as_damage(0):
        raise error
    assert raised.value is error


@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
def test_the_first_that_fails_is_found(count: int) -> None:
    for guilty in range(count + 1):
        attempts: list[int] = []

        def decode(some: int, guilty: int = guilty, attempts: list[int] = attempts) -> list[int]:
            attempts.append(some)
            if some > guilty:
                raise CorruptRecord("one of them")
            return list(range(some))

        decoded, sound, damage = up_to_damage(count, decode)
        assert (decoded, sound) == (list(range(guilty)), guilty)
        assert (damage is None) == (guilty == count)
        assert len(attempts) <= count.bit_length() + 1


def test_a_decoder_that_fails_over_no_records_is_given_up() -> None:
    def broken(some: int) -> None:
        raise CorruptRecord(f"{some} records")

    with pytest.raises(CorruptRecord, match=r"^0 records"):
        up_to_damage(5, broken)


@pytest.mark.parametrize("most", [1, 3, 50])
def test_where_memory_does_not_suffice_for_all_fewer_are_decoded(most: int) -> None:
    def decode(some: int) -> list[int]:
        if some > most:
            raise MemoryError
        return list(range(some))

    decoded, sound, damage = up_to_damage(100, decode)
    assert (decoded, damage) == (list(range(sound)), None)
    assert most // 2 < sound <= most


def test_an_error_elsewhere_keeps_its_type_and_words_and_holds_nothing() -> None:
    try:
        raise ChecksumMismatch("crc", offset=3, expected=1, found=2, hint="h", log="l")
    except ChecksumMismatch as error:
        moved: LogtwinError = placed(error, 5)
    assert type(moved) is ChecksumMismatch
    assert moved.facts() == {
        "type": "ChecksumMismatch", "problem": "crc", "log": "l", "offset": 5, "expected": "1", "found": "2",
        "hint": "h",
    }  # fmt: skip
    assert moved.__traceback__ is None
    assert moved.__cause__ is None


# what is special to streams of Arrow's; what becomes of bodies and batches is tested where these are


BODY = b"a body " * 100
STORED = {
    "gzip": gzip.compress(BODY), "lz4": lz4.frame.compress(BODY), "zstd": zstandard.ZstdCompressor().compress(BODY),
}  # fmt: skip


def held_bytes() -> int:
    """What Python and Arrow hold, wherever the system puts it."""
    return tracemalloc.get_traced_memory()[0] + int(pa.total_allocated_bytes())


@pytest.mark.parametrize("codec", STORED)
def test_a_damaged_stream_leaves_no_memory_behind(codec: str) -> None:
    """A reader of Arrow's lost a piece for each: a producer could have filled a worker's memory."""
    times = 20
    tracemalloc.start()
    try:
        before = held_bytes()
        for _ in range(times):
            with pytest.raises(OSError, match=r"(?i)decompress|truncated|lz4|zlib|zstd"):
                decompressed(STORED[codec][:-3], codec, 1 << 20)
        assert held_bytes() - before < times * PIECE_BYTES // 4
    finally:
        tracemalloc.stop()


# spans of a buffer


TEXT = b"name=value;;n=v tail"
BUFFER = pa.py_buffer(TEXT)


@given(st.lists(st.integers(0, len(TEXT)), max_size=12).map(sorted), st.data())
def test_spans_in_order_are_cut_out(places: list[int], data: st.DataObject) -> None:
    starts, ends = np.array(places[0::2], np.int64)[: len(places) // 2], np.array(places[1::2], np.int64)
    wanted = np.array([data.draw(st.booleans()) for _ in starts], np.bool_)
    spans = [TEXT[start:end] for start, end in zip(starts, ends, strict=True)]
    assert cut(pa.binary(), BUFFER, starts, ends).to_pylist() == spans
    expected = [span if wants else None for span, wants in zip(spans, wanted, strict=True)]
    assert cut(pa.binary(), BUFFER, starts, ends, wanted).to_pylist() == expected
