"""A commit log read from its files: its bounds while it is written, and every record exactly once."""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.errors import (
    AboveMaximum,
    BelowMinimum,
    ConfigurationError,
    CorruptRecord,
    LogtwinError,
    MissingSegment,
    SegmentError,
)
from sources.master import Chunk
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.files import segment_files
from sources.rocketmq.files.segment_files import Hole, Segment, list_segments, mapped, parts_of
from sources.rocketmq.files.segments import Segments
from sources.rocketmq.format.layout import DEFAULT_LIMITS, Limits
from tests.sampling import some_of
from tests.sources.rocketmq.log_reading import chunks_of
from tests.sources.rocketmq.synthetic_log import BLANK_HEAD, SyntheticLog, filled, record_bytes
from tests.spans import span

MIB = 1024 * 1024
SIZES = st.lists(st.integers(0, 1500), max_size=40)


def segments(log: SyntheticLog, limits: Limits = DEFAULT_LIMITS) -> Segments:
    return Segments(log.path, limits, settle_s=0.05, seen={})


def read(
    source: Segments, start: int, end: int, *, boundary: bool = True, chunk_bytes: int = 1000
) -> Iterator[tuple[OffsetRange, bytes, list[int]]]:
    """Per chunk: what it covers, its bytes, the offsets of its records. Checks that the three agree and join."""
    at: int | None = None
    for chunk in chunks_of(source.chunks(span(start, end), boundary, chunk_bytes)):
        offsets, sizes = chunk.records["offset"].to_pylist(), chunk.records["size"].to_pylist()
        assert len(chunk.raw) == chunk.covered.size == sum(sizes) > 0
        assert offsets[0] == chunk.covered.start
        assert at in (None, chunk.covered.start)
        at = chunk.covered.end
        yield chunk.covered, bytes(chunk.raw), offsets


@given(
    sizes=SIZES.filter(bool),
    first_file=st.integers(0, 2),
    cuts=st.lists(st.integers(0, 60_000), max_size=8),
    chunk_bytes=st.integers(1, 6000),
)
def test_every_record_belongs_to_exactly_one_range(
    sizes: list[int], first_file: int, cuts: list[int], chunk_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as path:
        log = filled(Path(path), *sizes, minimum=4096 * first_file)
        edges = sorted({log.minimum, log.end, *(log.minimum + cut % (log.end - log.minimum) for cut in cuts)})
        data = b""
        found: list[int] = []
        covered: list[OffsetRange] = []
        for start, end in pairwise(edges):
            for part, raw, offsets in read(
                segments(log), start, end, boundary=start == log.minimum, chunk_bytes=chunk_bytes
            ):
                assert start <= part.start < end
                data, found, covered = data + raw, found + offsets, [*covered, part]
        assert (data, found) == (log.data(), log.starts)
        assert all(before.end == after.start for before, after in pairwise(covered))


def test_a_chunk_is_about_as_large_as_asked_and_holds_whole_records(tmp_path: Path) -> None:
    log = filled(tmp_path, 10, 10, 500, 3000, 10, file_bytes=8192)
    small, middle, large = (len(record_bytes(0, bytes(size))) for size in (10, 500, 3000))
    sizes = [2 * small, middle, large, small]
    assert [part.size for part, _, _ in read(segments(log), 0, log.end, chunk_bytes=250)] == sizes


def test_reading_with_a_boundary_finds_one_only_where_a_record_starts(tmp_path: Path) -> None:
    log = filled(tmp_path, 20, 300, 400, 20, file_bytes=768)
    assert log.blanks
    for start in some_of(range(log.end), log.starts):
        if start in log.starts:
            assert next(read(segments(log), start, log.end))[0].start == start
            continue
        with pytest.raises(CorruptRecord, match="no record starts at the offset to read from") as raised:
            next(read(segments(log), start, log.end))
        assert raised.value.offset == start


@given(sizes=st.lists(st.integers(0, 400), min_size=1, max_size=40), offset=st.integers(0, 20_000))
def test_the_boundary_after_an_offset_far_into_a_file(sizes: list[int], offset: int) -> None:
    """The search begins a record's size before the offset, which is in the middle of other records."""
    with tempfile.TemporaryDirectory() as path:
        log = filled(Path(path), *sizes)
        wanted = offset % log.end
        boundary = min((at for at in log.starts if at >= wanted), default=log.end)
        source = segments(log, Limits(max_record_bytes=512))
        assert source.boundary_after(Offset(wanted), Offset(log.end)) == boundary


def test_the_search_for_a_boundary_may_begin_before_a_forgery(tmp_path: Path) -> None:
    """It begins `max_record_bytes` back, in a body that holds a forged record or blank, and goes on from there."""
    log = filled(tmp_path, 10, 10)
    forged_at = log.end + 88 + 300
    log.append((b"x" * 300 + record_bytes(forged_at, b"forged")).ljust(480, b"x"))
    next_at = log.end + len(record_bytes(0, bytes(480)))
    log.append((b"x" * 300 + BLANK_HEAD.pack(next_at - log.end - 388, 0xCBD43194)).ljust(480, b"x"))
    forged_at = log.end + 88 + 200
    log.append((b"x" * 200 + record_bytes(forged_at, b"forged")).ljust(480, b"x"))
    log.append(b"last")
    source = segments(log, Limits(max_record_bytes=600))
    for start in some_of(range(log.starts[2], log.end), log.starts):
        boundary = min((at for at in log.starts if at >= start), default=log.end)
        assert source.boundary_after(Offset(start), Offset(log.end)) == boundary


def test_records_that_stand_behind_a_blank_are_none(tmp_path: Path) -> None:
    log = filled(tmp_path, 100)
    blank = log.end
    log.append_blank()
    log.append(b"next")
    log.write(blank + 8, record_bytes(blank + 8, b"in its very place, but not in the log"))
    for start in some_of(range(blank + 1, blank + 300), [blank + 8]):
        assert segments(log).boundary_after(Offset(start), Offset(log.end)) == 4096


def test_the_boundary_after_an_offset_is_at_most_the_maximum(tmp_path: Path) -> None:
    log = filled(tmp_path, 100, 100)
    inside = log.starts[1] + 1
    for offset, maximum in (
        (inside, log.end),
        (inside, inside + 9),
        (log.end, log.end),
        (log.end + 9, log.end),
        (0, 0),
    ):
        assert segments(log).boundary_after(Offset(offset), Offset(maximum)) == maximum
    while log.end < 8192:
        log.append(bytes(1000))
    log.file(0).unlink()
    with pytest.raises(BelowMinimum):
        segments(log).boundary_after(Offset(5), Offset(log.end))


def test_a_live_log_is_read_without_a_false_alarm(tmp_path: Path) -> None:
    log = SyntheticLog(tmp_path)

    def produce() -> None:
        for number in range(100):
            log.append(bytes([1 + number % 250]) * (number * 7 % 900), piece_bytes=13)

    producer = threading.Thread(target=produce)
    producer.start()
    source, ends, found = Segments(tmp_path), [Offset(0)], []
    while producer.is_alive() or ends[-1] < log.end:
        ends.append(source.bounds(ends[-1]).end)
        assert ends[-2] <= ends[-1]
        found += [offset for _, _, offsets in read(source, ends[-2], ends[-1]) for offset in offsets]
    producer.join()
    assert set(ends) <= set(log.boundaries)
    assert found == log.starts


@pytest.mark.parametrize(
    ("records", "gone", "kind", "said"),
    [
        (12, (0, 4096), BelowMinimum, "at offset 4096: .*8192"),
        (5, (4096, 8192), SegmentError, f"{4096:020d} has gone"),
        (12, (4096,), MissingSegment, f"at offset 4096: .*{4096:020d} is missing"),
    ],
    ids=["retention overtakes the reader", "the last files are no retention", "one between others is missing"],
)
def test_files_that_go_away_while_they_are_read(
    tmp_path: Path, records: int, gone: tuple[int, ...], kind: type[LogtwinError], said: str
) -> None:
    log = filled(tmp_path, *[1000] * records)
    next(chunks := read(segments(log), 0, log.end))
    for start in gone:
        log.file(start).unlink()
    with pytest.raises(kind, match=said) as raised:
        list(chunks)
    assert type(raised.value) is kind


@pytest.mark.parametrize("chunk_bytes", [1, 1000, 1 << 20])
def test_a_hole_is_an_error_naming_both_files(tmp_path: Path, chunk_bytes: int) -> None:
    log = filled(tmp_path, *[1000] * 5)
    (blank,) = log.blanks
    log.write(blank, bytes(8))
    chunks = segments(log).chunks(span(0, log.end), True, chunk_bytes)
    with pytest.raises(CorruptRecord, match="hole") as raised:
        list(chunks)
    assert raised.value.offset == blank
    assert log.file(0).name in str(raised.value)
    assert log.file(4096).name in str(raised.value)


@pytest.mark.parametrize("byte", [2, 5, 30, 150])
@pytest.mark.parametrize("past_damage", [False, True])
def test_a_range_past_damage_in_the_newest_file_is_above_the_maximum(
    tmp_path: Path, byte: int, past_damage: bool
) -> None:
    """A range was planned up to an end that has gone since: the broker has recovered, and ends its log before that."""
    log = filled(tmp_path, 300, 300, 300)
    log.write(log.starts[1] + byte, b"\x5a")
    source = Segments(log.path, past_damage=past_damage, settle_s=0, seen={})
    with pytest.raises(AboveMaximum) as raised:
        list(source.chunks(span(0, log.end), True, 1000))
    assert raised.value.offset == log.end
    assert f"{log.starts[1]} or less" in str(raised.value)


def test_batches_stay_good_and_views_do_not(tmp_path: Path) -> None:
    log = filled(tmp_path, *[100] * 30)
    chunks: list[Chunk] = list(chunks_of(segments(log).chunks(span(0, log.end), True, 500)))
    for path in tmp_path.iterdir():
        path.write_bytes(bytes(4096))
    bodies = [body for chunk in chunks for body in chunk.records["body"].to_pylist() if body is not None]
    assert bodies == [bytes([1 + number]) * 100 for number in range(30)]
    with pytest.raises(ValueError, match="released"):
        bytes(chunks[0].raw)


# which files there are, and one of them in memory


def make(path: Path, files: dict[int, int]) -> Path:
    """Files named by offset, of so many bytes each."""
    for start, size in files.items():
        (path / f"{start:020d}").write_bytes(bytes(size))
    return path


def test_other_names_are_ignored(tmp_path: Path) -> None:
    make(tmp_path, {0: 100, 100: 100})
    for name in (".hidden", "lock", "00000000000000000050.bak", "123", "0000000000000000005x"):
        (tmp_path / name).write_bytes(b"x")
    for start in (50, 300):  # folders, whatever their names
        (tmp_path / f"{start:020d}").mkdir()
    make(tmp_path, {200: 0})  # and an empty last file, as a broker does
    assert [segment.start for segment in list_segments(tmp_path)] == [0, 100]


@pytest.mark.parametrize("files", [{}, {0: 0}])
def test_a_directory_without_segment_files_or_that_is_none_is_an_error_naming_it(
    tmp_path: Path, files: dict[int, int]
) -> None:
    make(tmp_path, files)
    (tmp_path / "readme").write_bytes(b"x")
    with pytest.raises(ConfigurationError, match="no segment file") as raised:
        list_segments(tmp_path)
    assert str(tmp_path) in str(raised.value)
    assert "20 digits" in str(raised.value)
    for name, found in (("commitlgo", "No such file or directory"), ("readme", "Not a directory")):
        with pytest.raises(ConfigurationError, match=str(tmp_path / name)) as raised:
            list_segments(tmp_path / name)
        assert raised.value.found == found


@pytest.mark.parametrize("files", [{0: 100, 200: 100}, {0: 100, 100: 100, 300: 100}, {0: 100, 500: 100}])
def test_a_missing_middle_file_is_named(tmp_path: Path, files: dict[int, int]) -> None:
    missing = next(start for start in range(0, 500, 100) if start not in files)
    listed = list_segments(make(tmp_path, files))
    assert [segment.start for segment in listed] == list(files)
    (hole,) = [part for part in parts_of(listed, span(0, 600)) if isinstance(part, Hole)]
    assert hole.error().offset == missing
    assert f"{missing:020d} is missing" in str(hole.error())


@pytest.mark.parametrize(
    ("files", "wrong", "word"),
    [
        ({0: 100, 100: 60, 200: 100}, 100, "shorter"),
        ({0: 60, 100: 100}, 0, "shorter"),
        ({0: 100, 100: 60}, 100, "shorter"),
        ({0: 100, 100: 0, 200: 100}, 100, "shorter"),
        ({0: 100, 100: 101}, 100, "longer"),
    ],
)
def test_a_file_of_another_length_is_named(tmp_path: Path, files: dict[int, int], wrong: int, word: str) -> None:
    with pytest.raises(SegmentError, match=f"{wrong:020d} is {word} than its neighbours") as raised:
        list_segments(make(tmp_path, files))
    assert (raised.value.expected, raised.value.found) == ("100 bytes", f"{files[wrong]} bytes")


def test_a_file_that_appears_during_the_scan_is_no_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, {0: 100, 100: 100, 200: 100})
    scan = segment_files._scan
    partial = [[segment for segment in scan(tmp_path) if segment.start != 100]]
    monkeypatch.setattr(segment_files, "_scan", lambda path: partial.pop() if partial else scan(path))
    assert [segment.start for segment in list_segments(tmp_path)] == [0, 100, 200]


def segment(tmp_path: Path, data: bytes, start: int = 4096) -> Segment:
    path = tmp_path / f"{start:020d}"
    path.write_bytes(data)
    return Segment(path, Offset(start), len(data))


def test_forgotten_pages_can_be_read_again_and_an_array_outlives_its_map(tmp_path: Path) -> None:
    data = np.arange(1 << 14, dtype=np.uint32).tobytes()
    with mapped(segment(tmp_path, data)) as file:
        file.forget(Offset(4096 + 40_000))
        file.forget(Offset(4096 + len(data)))
        with file.rest(Offset(4096)) as view:
            array = np.frombuffer(view, np.uint8)
    assert array.tobytes() == data


def test_a_file_that_changed_its_length_since_it_was_listed_is_an_error(tmp_path: Path) -> None:
    listed = segment(tmp_path, bytes(200))
    listed.path.write_bytes(bytes(100))
    with pytest.raises(SegmentError, match="changed its length") as raised, mapped(listed):
        pass
    assert (raised.value.expected, raised.value.found) == ("200 bytes", "100 bytes")


@contextmanager
def as_a_user() -> Iterator[None]:
    """Whom files can be kept from: root they cannot."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_we_may_not_read_is_named_and_what_to_do(tmp_path: Path) -> None:
    (segment,) = list_segments(make(tmp_path, {0: 100}))
    segment.path.chmod(0)
    for read in (segment.has_data, lambda: mapped(segment)):
        with as_a_user(), pytest.raises(ConfigurationError, match=rf"read {segment.path}.*Permission denied.*setfacl"):
            read()
