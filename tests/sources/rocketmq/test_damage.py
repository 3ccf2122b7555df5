"""Damage in a log, by path and as a stream: raised as what it is, or handed over as exactly what it spoils."""

import random
import struct
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.errors import ChecksumMismatch, CorruptRecord
from sources.master import Chunk, Damage
from sources.offsets import Offset
from sources.rocketmq.session.stream_chunks import ChunkReader, LogEnd
from tests.sampling import some_of
from tests.sources.rocketmq.damaged_logs import (
    MAX_RECORD_BYTES,
    WAYS,
    Reading,
    Way,
    assert_covers,
    damage,
    in_frames,
    offsets,
)
from tests.sources.rocketmq.log_reading import owned
from tests.sources.rocketmq.synthetic_log import SyntheticLog, filled, record_bytes

BOTH = pytest.mark.parametrize("way", WAYS, ids=["path", "stream"])


def flip(log: SyntheticLog, offset: int, mask: int = 0xFF) -> None:
    log.write(offset, bytes([log.data()[offset - log.minimum] ^ mask]))


@BOTH
@pytest.mark.parametrize(
    ("at", "mask", "kind"),
    [(0, 1, CorruptRecord), (11, 1, ChecksumMismatch), (35, 1, CorruptRecord), (89 + 161, 0xFF, CorruptRecord)],
)
def test_a_flipped_byte_spoils_its_record_and_no_other(
    tmp_path: Path, way: Way, at: int, mask: int, kind: type[CorruptRecord]
) -> None:
    """Of the size, the body's CRC, the place, the topic. What each field's damage is called: test_commitlog.py."""
    log = filled(tmp_path, *[161] * 8)
    start, end = log.starts[4], log.starts[5]
    flip(log, start + at, mask)
    pieces = way(Reading(), log, 0, log.end)
    assert_covers(pieces, log, 0, log.end)
    assert damage(pieces) == [(start, end)]
    (error,) = {str(piece.error): piece.error for piece in pieces if isinstance(piece, Damage)}.values()
    assert (type(error), error.offset) == (kind, start)
    with pytest.raises(kind) as raised:
        way(Reading(past_damage=False), log, 0, log.end)
    assert str(raised.value) == str(error)


@BOTH
@pytest.mark.parametrize("factor", [2, 3, 5])
def test_a_wrong_size_that_leads_to_another_record_spoils_one_record(tmp_path: Path, way: Way, factor: int) -> None:
    log = filled(tmp_path, *[161] * 12)
    start, size = log.starts[3], log.starts[4] - log.starts[3]
    log.write(start, struct.pack(">i", factor * size))
    pieces = way(Reading(), log, 0, log.end)
    assert_covers(pieces, log, 0, log.end)
    assert damage(pieces) == [(start, start + size)]


@BOTH
@pytest.mark.parametrize(("at", "mask"), [(0, 1), (2, 1), (3, 1), (3, 8), (4, 1), (7, 1)])
def test_a_damaged_blank(tmp_path: Path, way: Way, at: int, mask: int) -> None:
    log = filled(tmp_path, *[900] * 9)
    blank = log.blanks[0]
    flip(log, blank + at, mask)
    pieces = way(Reading(), log, 0, log.end)
    assert damage(pieces) == [(blank, 4096)]
    assert offsets(pieces) == [start for start in log.starts if start != blank]
    with pytest.raises(CorruptRecord) as raised:
        way(Reading(past_damage=False), log, 0, log.end)
    assert raised.value.offset == blank


@BOTH
def test_a_forged_record_in_a_damaged_record_is_none(tmp_path: Path, way: Way) -> None:
    """A producer may guess the offset of its own body."""
    log = filled(tmp_path, 100, 100)
    forged_at = log.end + 88 + 50
    log.append((b"x" * 50 + record_bytes(forged_at, b"forged")).ljust(300, b"x"))
    log.append(b"last")
    forger, behind = log.starts[2], log.starts[3]
    flip(log, forger + 11, 0x01)
    pieces = way(Reading(), log, 0, log.end)
    assert damage(pieces) == [(forger, behind)]
    assert offsets(pieces) == [*log.starts[:2], behind]


SIZES = st.lists(st.integers(0, 1500), min_size=1, max_size=30)


@given(
    sizes=SIZES,
    at=st.integers(0, 40_000),
    length=st.integers(1, 9000),
    seed=st.integers(0, 2**32),
    chunk_bytes=st.integers(1, 6000),
    split_bytes=st.integers(300, 8000),
)
def test_any_stretch_of_garbage_in_any_splits(
    sizes: list[int], at: int, length: int, seed: int, chunk_bytes: int, split_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as path:
        log = filled(Path(path), *sizes)
        spoil(log, at % log.end, min(length, log.end - at % log.end), seed)
        assert_read_in_any_way(log, Reading(chunk_bytes), split_bytes)


@given(
    sizes=SIZES,
    flips=st.lists(st.tuples(st.integers(0, 40_000), st.integers(1, 255)), min_size=1, max_size=8),
    chunk_bytes=st.integers(1, 6000),
    split_bytes=st.integers(300, 8000),
)
def test_any_flipped_bytes_in_any_splits(
    sizes: list[int], flips: list[tuple[int, int]], chunk_bytes: int, split_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as path:
        log = filled(Path(path), *sizes)
        for at, mask in flips:
            flip(log, at % log.end, mask)
        assert_read_in_any_way(log, Reading(chunk_bytes), split_bytes)


def assert_read_in_any_way(log: SyntheticLog, reading: Reading, split_bytes: int) -> None:
    """Planned and read from files; as one stream; as batches of one stream; as streams side by side."""
    log.go_on()
    assert reading.files(log).bounds().end > log.end
    cuts = list(reading.files(log).pieces(owned(0, log.end), split_bytes))
    parts = [reading.by_path(log, cut.start, cut.end) for cut in cuts]
    assert_covers(list(chain(*parts)), log, 0, log.end)
    assert [part[-1].covered.end for part in parts] == [cut.end for cut in cuts]

    assert_covers(reading.by_stream(log, 0, log.end), log, 0, log.end)
    assert_covers(in_batches(reading, log, split_bytes), log, 0, log.end)
    parts = [
        reading.by_stream(log, cut.start, cut.end, boundary=not cut.start, searched=True)
        for cut in owned(0, log.end).in_pieces(split_bytes)
    ]
    assert_covers(list(chain(*parts)), log, 0, log.end)


def spoil(log: SyntheticLog, at: int, length: int, seed: int) -> None:
    """Other bytes from `at` on, over the ends of files."""
    noise = random.Random(seed)
    for offset in range(at, at + length):
        if offset == at or not offset % log.file_bytes:
            left = min(at + length, (offset // log.file_bytes + 1) * log.file_bytes) - offset
            log.write(offset, noise.choice((noise.randbytes(left), bytes(left))))


def in_batches(reading: Reading, log: SyntheticLog, batch_bytes: int) -> list[Chunk | Damage]:
    """As one connection reads it: each batch begins where the last one ended."""
    at = 0
    found: list[Chunk | Damage] = []
    while at < log.end:
        pieces = reading.by_stream(log, at, min(at + batch_bytes, log.end))
        assert pieces[-1].covered.end >= min(at + batch_bytes, log.end)
        found, at = found + pieces, pieces[-1].covered.end
    return found


def test_a_stream_gathers_no_more_than_two_records_of_the_largest_size() -> None:
    """What is taken from the stream and not handed over yet."""
    noise = random.Random(5).randbytes(40 * MAX_RECORD_BYTES)
    end, taken = Offset(len(noise)), 0

    def counted() -> Iterator[bytes]:
        nonlocal taken
        for frame in in_frames(noise, 700):
            taken += len(frame)
            yield frame

    reader = ChunkReader(
        chunk_bytes=1000, limits=Reading().limits, log_end=LogEnd(end, ask=lambda: end), past_damage=True
    )
    waiting = []
    for piece in reader.read(counted(), owned(0, end), boundary=True):
        waiting.append(taken - piece.covered.start)
        assert isinstance(piece, Damage)
        assert bytes(piece.raw or b"") == noise[piece.covered.start : piece.covered.end]
    assert max(waiting) < 2 * MAX_RECORD_BYTES + 1000


def test_splits_join_over_forged_records_in_damage(tmp_path: Path) -> None:
    """Which of two forged records in a damaged one is taken for a record depends on where the cut is; not so whether
    both readers take the same."""
    log = filled(tmp_path, 100)
    first, second = log.end + 88 + 50, log.end + 88 + 200
    forged = (b"x" * 50 + record_bytes(first, b"forged")).ljust(200, b"x") + record_bytes(second, b"forged")
    log.append(forged.ljust(400, b"x"))
    log.append(b"last")
    forger = log.starts[1]
    flip(log, forger + 11, 0x01)
    for cut in some_of(range(forger, log.starts[2] + 1), (first, second, forger + 11)):
        before = Reading().by_stream(log, 0, cut, searched=True)
        behind = Reading().by_stream(log, cut, log.end, boundary=False, searched=True)
        found = min(at for at in (first, second, log.starts[2]) if at >= cut)
        assert (before[-1].covered.end, behind[0].covered.start) == (found, found)
        assert offsets(before) == [0]


def test_a_forged_record_behind_a_split_is_an_error_in_either_mode(tmp_path: Path) -> None:
    log = filled(tmp_path, 100)
    forged_at = log.end + 88 + 50
    log.append((b"x" * 50 + record_bytes(forged_at, b"forged")).ljust(300, b"x"))
    log.append(b"last")
    with pytest.raises(CorruptRecord, match=f"what looks like a record at {forged_at}"):
        Reading().by_stream(log, 0, forged_at - 10, searched=True)
    assert damage(Reading().by_stream(log, 0, forged_at - 10)) == []


def test_less_than_a_record_at_the_end_of_the_log(tmp_path: Path) -> None:
    """A range inside the last record owns nothing; one that begins where no record has room is an error."""
    log = filled(tmp_path, 300, 300)
    reading = Reading(past_damage=False)
    assert reading.by_stream(log, log.end - 20, log.end, boundary=False) == []
    log.end = log.starts[1] + 5
    with pytest.raises(CorruptRecord, match="reaches past the end of the master's log"):
        reading.by_stream(log, log.starts[1], log.end)
