"""Segment files made anew: their size, their names, and that they are there whole or not at all."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sources.errors import ConfigurationError, CorruptRecord
from sources.offsets import Offset
from sources.rocketmq.files.rebuilt_files import RebuiltFiles, check_file_ends, file_size_bytes

SIZE = 1000


@pytest.mark.parametrize(
    ("stretches", "size"),
    [
        ([(0, [1000])], 1000),  # of a log from 0 the first blank ends the first file
        ([(2345, [3000, 4000, 5000])], 1000),  # two blanks are a file apart
        ([(3000, [4000])], 1000),  # a log may begin at any file
        ([(2345, [3000])], None),  # a beginning inside a file tells nothing
        ([(2345, [3000]), (4500, [5000, 6000])], 1000),  # over a hole nothing is counted
        ([(0, [])], None),
        ([], None),
    ],
)
def test_the_blanks_of_a_log_tell_its_file_size(stretches: list[tuple[int, list[int]]], size: int | None) -> None:
    assert file_size_bytes((Offset(start), map(Offset, ends)) for start, ends in stretches) == size


def test_no_more_is_read_than_it_takes() -> None:
    assert file_size_bytes([(Offset(0), map(Offset, count(1000, 1000)))]) == 1000


def records(*of: tuple[str, int], start: int = 0) -> pa.RecordBatch:
    """Consecutive records, (kind, size)."""
    sizes = [size for _, size in of]
    offsets = [start + sum(sizes[:at]) for at in range(len(sizes))]
    return pa.RecordBatch.from_arrays(
        [pa.array(offsets), pa.array(sizes, pa.int32()), pa.array([kind for kind, _ in of])], ["offset", "size", "kind"]
    )


def test_blanks_end_files() -> None:
    check_file_ends(records(("message", 900), ("blank", 100), ("message", 992), ("blank", 8)), SIZE)
    check_file_ends(records(("message", 100), start=1100), SIZE)
    check_file_ends(records(("message", 100)).slice(0, 0), SIZE)


@pytest.mark.parametrize(
    ("of", "at"),
    [
        ((("message", 900), ("message", 200)), 900),
        ((("message", 900), ("message", 100)), 900),
        ((("message", 900), ("blank", 50)), 900),
        ((("message", 900), ("blank", 1100)), 900),
    ],
    ids=["over the end", "up to the end", "blank inside", "blank of two files"],
)
def test_what_does_not_fit_is_named(of: tuple[tuple[str, int], ...], at: int) -> None:
    with pytest.raises(CorruptRecord, match="files of 1000 bytes") as caught:
        check_file_ends(records(*of), SIZE)
    assert caught.value.offset == at


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


class Killed(BaseException):
    """Nothing of the process runs on behind it."""


def killed_while(place: Path, write: Callable[[RebuiltFiles], None], calls: int | None = None) -> None:
    """A rebuild into `place` that is gone: after `write`, or before it changes the disk more than `calls` times."""
    files = RebuiltFiles(place, SIZE)
    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        left = count() if calls is None else iter(range(calls))
        for name in ("mkdir", "open", "unlink", "rmdir", "rename", "ftruncate"):
            patch.setattr(os, name, while_any(left, getattr(os, name)))
        files.__enter__()
        write(files)
    files._folder._lock.close()  # as the end of a process does


def while_any(left: Iterator[int], call: Callable[..., object]) -> Callable[..., object]:
    def one(*given: Any, **named: Any) -> object:
        if next(left, None) is None:
            raise Killed
        return call(*given, **named)

    return one


def test_a_log_that_begins_above_0_and_has_holes(tmp_path: Path) -> None:
    with RebuiltFiles(tmp_path, SIZE) as files:
        files.write(Offset(3200), memoryview(b"a" * 300))
        files.write(Offset(5990), memoryview(b"b" * 10))
        assert files.finish(Offset(6000)) == (3000, 4000, 5000)
    assert contents(tmp_path) == {
        "00000000000000003000": bytes(200) + b"a" * 300 + bytes(500),
        "00000000000000004000": bytes(1000),
        "00000000000000005000": bytes(990) + b"b" * 10,
    }


def test_what_a_kill_left_is_no_part_of_the_next(tmp_path: Path) -> None:
    killed_while(tmp_path / "commitlog", lambda files: files.write(Offset(6990), memoryview(b"of another log" * 100)))
    assert (tmp_path / "commitlog.rebuilding").exists()
    with RebuiltFiles(tmp_path / "commitlog", SIZE) as files:
        files.write(Offset(0), memoryview(b"a"))
        files.finish(Offset(1))
    assert contents(tmp_path / "commitlog") == {"00000000000000000000": b"a" + bytes(999)}
    assert [path.name for path in tmp_path.iterdir()] == ["commitlog"]


@pytest.mark.parametrize("calls", range(16))
def test_killed_anywhere_the_next_goes_through(tmp_path: Path, calls: int) -> None:
    """By the count of calls that change what is on the disk: folders, files, names."""

    def two_files(files: RebuiltFiles) -> None:
        files.write(Offset(0), memoryview(b"b" * 1500))
        files.finish(Offset(1500))

    killed_while(tmp_path / "commitlog", two_files, calls)
    there = tmp_path / "commitlog"
    if not there.exists():
        with RebuiltFiles(there, SIZE) as files:
            two_files(files)
    assert contents(there) == {"00000000000000000000": b"b" * 1000, f"{1000:020d}": b"b" * 500 + bytes(500)}


@pytest.mark.parametrize("name", ["00000000000000000000", "notes.txt", "files/notes.txt", "files/more/0"])
@pytest.mark.parametrize("killed", [False, True])
def test_what_another_put_beside_it_stays(tmp_path: Path, name: str, killed: bool) -> None:
    """An operator's own folder of that name, also with the names of segment files, is nobody's to empty."""
    if killed:
        killed_while(tmp_path / "commitlog", lambda files: files.write(Offset(0), memoryview(b"a")))
    beside = tmp_path / "commitlog.rebuilding"
    (beside / name).parent.mkdir(parents=True, exist_ok=True)
    (beside / name).write_bytes(b"mine")
    before = {path: path.is_dir() or path.read_bytes() for path in beside.rglob("*")}
    with (
        pytest.raises(ConfigurationError, match="another put there") as caught,
        RebuiltFiles(tmp_path / "commitlog", SIZE),
    ):
        pass
    assert str(beside) in str(caught.value)
    assert any(f"put there: {part}" in str(caught.value) for part in name.split("/"))
    assert {path: path.is_dir() or path.read_bytes() for path in beside.rglob("*")} == before


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(ConfigurationError, match="expected a directory that is empty") as caught:
            RebuiltFiles(place, SIZE)
        assert str(place) in str(caught.value)
    assert contents(tmp_path) == {"file": b"mine"}


def test_what_appears_there_meanwhile_stays(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError), RebuiltFiles(tmp_path / "commitlog", SIZE) as files:
        files.write(Offset(0), memoryview(b"a"))
        (tmp_path / "commitlog").mkdir()
        (tmp_path / "commitlog/another").write_text("mine")
        files.finish(Offset(1))
    assert contents(tmp_path / "commitlog") == {"another": b"mine"}


def test_two_at_one_place_are_refused(tmp_path: Path) -> None:
    with RebuiltFiles(tmp_path / "commitlog", SIZE) as files:
        with pytest.raises(ConfigurationError, match="no other rebuild"), RebuiltFiles(tmp_path / "commitlog", SIZE):
            pass
        files.write(Offset(0), memoryview(b"a"))
        files.finish(Offset(1))
    assert contents(tmp_path / "commitlog") == {"00000000000000000000": b"a" + bytes(999)}


def test_a_full_disk_is_the_operators_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(ConfigurationError, match="No space left"), RebuiltFiles(tmp_path / "commitlog", SIZE) as files:
        files.write(Offset(0), memoryview(b"a"))
    assert list(tmp_path.iterdir()) == []
