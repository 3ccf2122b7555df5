"""An entry that its decoder fails over, though nothing that is thought of is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sources.dister.format import columns, line_walk
from sources.errors import OutOfMemory
from tests.sources.dister.entry_logs import leader, pieces, set_line

LINES = [set_line(10 * number, f"k{number}") for number in range(1, 7)]
Break = Callable[[pytest.MonkeyPatch], None]


def in_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    entry_of = line_walk.entry_of

    def failing(line: Any) -> Any:
        if line.text.startswith(b"30,"):
            raise RecursionError
        return entry_of(line)

    monkeypatch.setattr(line_walk, "entry_of", failing)


def in_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = columns.encode

    def failing(group: Any) -> Any:
        if any(piece.entry.id == 30 for piece in group):
            raise OverflowError
        return encode(group)

    monkeypatch.setattr(columns, "encode", failing)


@pytest.mark.parametrize("broken", [in_the_line, in_the_columns])
def test_it_is_damage_and_the_others_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broken: Break) -> None:
    log = leader(tmp_path, *LINES, past_damage=True)
    whole = pieces(log, 0, 61)
    broken(monkeypatch)
    expected = [("damage", *one[1:]) if one[2] == 31 else one for one in whole]
    assert pieces(log, 0, 61) == expected


def test_a_lack_of_memory_for_one_entry_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    encode = columns.encode

    def failing(group: Any) -> Any:
        if any(piece.entry.id == 30 for piece in group):
            raise MemoryError("cannot allocate")
        return encode(group)

    monkeypatch.setattr(columns, "encode", failing)
    with pytest.raises(OutOfMemory, match="cannot allocate") as raised:
        pieces(leader(tmp_path, *LINES, past_damage=True), 0, 61)
    assert (raised.value.log, raised.value.offset) == ("dister/g", 21)
