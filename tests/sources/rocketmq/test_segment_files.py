"""Which segment files there are, and one of them in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from sources.errors import ConfigurationError, SegmentError
from sources.offsets import Offset
from sources.rocketmq.files import segment_files
from sources.rocketmq.files.segment_files import Hole, Segment, list_segments, mapped, parts_of
from tests.spans import span


def make(path: Path, files: dict[int, int]) -> Path:
    """Files named by offset, of so many bytes each."""
    for start, size in files.items():
        (path / f"{start:020d}").write_bytes(bytes(size))
    return path


@pytest.mark.parametrize(
    "files",
    [{0: 100}, {0: 100, 100: 100, 200: 100}, {700: 100, 800: 100}, {0: 1 << 20, 1 << 20: 1 << 20}],
    ids=["one", "three", "retention took the first ones", "megabytes"],
)
def test_files_are_listed_in_log_order(tmp_path: Path, files: dict[int, int]) -> None:
    listed = list_segments(make(tmp_path, files))
    assert [(segment.path.name, segment.start, segment.size) for segment in listed] == [
        (f"{start:020d}", start, size) for start, size in sorted(files.items())
    ]
    assert [segment.end for segment in listed] == [start + size for start, size in sorted(files.items())]


def test_other_names_are_ignored(tmp_path: Path) -> None:
    make(tmp_path, {0: 100, 100: 100})
    for name in (".hidden", "lock", "00000000000000000050.bak", "123", "0000000000000000005x"):
        (tmp_path / name).write_bytes(b"x")
    for start in (50, 300):  # folders, whatever their names
        (tmp_path / f"{start:020d}").mkdir()
    make(tmp_path, {200: 0})  # and an empty last file, as a broker does
    assert [segment.start for segment in list_segments(tmp_path)] == [0, 100]


@pytest.mark.parametrize("files", [{}, {0: 0}])
def test_a_directory_without_segment_files_is_an_error_naming_it(tmp_path: Path, files: dict[int, int]) -> None:
    make(tmp_path, files)
    (tmp_path / "readme").write_bytes(b"x")
    with pytest.raises(ConfigurationError, match="no segment file") as raised:
        list_segments(tmp_path)
    assert str(tmp_path) in str(raised.value)
    assert "20 digits" in str(raised.value)


def test_a_directory_that_is_none_is_an_error_naming_it(tmp_path: Path) -> None:
    make(tmp_path, {0: 100})
    for name, found in (("commitlgo", "No such file or directory"), (f"{0:020d}", "Not a directory")):
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


def test_a_map_outlives_its_with_where_an_array_still_needs_it(tmp_path: Path) -> None:
    with mapped(segment(tmp_path, bytes(range(200)))) as file, file.rest(Offset(4096)) as view:
        array = np.frombuffer(view, np.uint8)
    assert array.sum() == sum(range(200))


def test_forgotten_pages_can_be_read_again(tmp_path: Path) -> None:
    data = np.arange(1 << 14, dtype=np.uint32).tobytes()
    with mapped(segment(tmp_path, data)) as file:
        file.forget(Offset(4096 + 40_000))
        file.forget(Offset(4096 + len(data)))
        with file.rest(Offset(4096)) as view:
            assert bytes(view) == data


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
