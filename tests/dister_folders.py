"""Folders of leaders with the very ids that a test wants, written anew each time."""

import shutil
from collections.abc import Collection, Sequence
from itertools import groupby
from pathlib import Path

from sources.dister.entries import ACT_SET, encode_line
from sources.dister.layout import ENTRY_LOG, batch_number, batch_path
from tests.sources.dister.entry_logs import write

RND = 1111


def leader(count: int, first: int = 1) -> list[int]:
    """L(n): the ids of so many writes, with the random part RND."""
    return [index * 10_000 + RND for index in range(first, first + count)]


def dirty(first: int, rnd: int, count: int = 1) -> list[int]:
    """X(i, r), and those after it."""
    return [index * 10_000 + rnd for index in range(first, first + count)]


def line(entry_id: int, *, is_changed: bool = False) -> bytes:
    """The entry of an id, the same in every folder unless it is changed."""
    items = {f"key {entry_id // 10_000 % 50}": "other" if is_changed else f"value of {entry_id}"}
    return encode_line(entry_id, ACT_SET, items)


def write_log(folder: Path, ids: Sequence[int], changed: Collection[int] = ()) -> bytes:
    """A log of these entries instead of the folder's; those of the indexes `changed` say something else. Its bytes."""
    shutil.rmtree(folder / ENTRY_LOG, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        number: b"".join(line(one, is_changed=one // 10_000 in changed) for one in batch)
        for number, batch in groupby(ids, key=batch_number)
    }
    write(folder, files)
    return b"".join(files.values())


def append_log(folder: Path, ids: Sequence[int]) -> None:
    """Behind what is there."""
    for number, batch in groupby(ids, key=batch_number):
        path = folder / ENTRY_LOG / batch_path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.writelines(map(line, batch))
