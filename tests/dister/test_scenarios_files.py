"""Scenarios 11 to 16: lines that are torn, short or glued, and the files they are in."""

from __future__ import annotations

from pathlib import Path

import pytest

from sinks.batch.result import BatchStep
from sources.dister.files.layout import ENTRY_LOG
from sources.errors import CorruptRecord, MissingSegment
from tests.dister.twin import Twin
from tests.dister_folders import append_log, leader, write_log


def test_scenario_11_a_torn_last_line_is_not_written_yet(twin: Twin) -> None:
    """D-8: completed later it comes in, once."""
    with twin.leader() as node:
        node.set({"a": "1"})
        whole = node.set({"b": "1"})
        torn = node.append_torn({"c": "1"}, size_bytes=12)
        twin.take()
        assert twin.ids()[-1] == whole
        node.complete_torn()
        assert node.last_id == torn.id
    twin.replicate()
    twin.assert_equal()


def test_scenario_12_a_torn_line_that_the_next_is_glued_to_is_corrupt(twin: Twin) -> None:
    """D-8: never passed in silence. With on_loss = record it is in quarantine, and the log goes on behind it."""
    with twin.leader() as node:
        first = node.set({"a": "1"})
        node.append_torn({"b": "1"}, size_bytes=16)
        node.set({"c": "glued"})
        after = node.set({"d": "1"})
    with pytest.raises(CorruptRecord) as caught:
        twin.replicate()
    assert f"{twin.folder / ENTRY_LOG / '0/0'}, line 2" in caught.value.problem
    assert twin.ids() == [first]
    assert twin.position == first + 1
    twin.replicate(on_loss="record")
    assert twin.ids() == [first, after]
    assert twin.kv() == {"a": "1", "d": "1"}


def test_scenario_13_blank_and_short_lines_are_passed(twin: Twin) -> None:
    """Of fewer than ten bytes, as dister's own reader passes them, also such that are no entry."""
    with twin.leader() as node:
        node.append_raw(b"\n\n")
        node.set({"a": "1"})
        node.append_raw(b"123456789\n\n1,2,3\n")
        node.set({"b": "1"})
        node.append_raw(b"\n")
    twin.take()
    twin.assert_equal()
    assert len(twin.ids()) == 2


@pytest.mark.parametrize(("first", "files"), [(99_998, ["0/0", "0/1"]), (9_999_998, ["0/99", "1/100"])])
def test_scenario_14_the_log_goes_on_in_the_next_file(twin: Twin, first: int, files: list[str]) -> None:
    """DI-41: at index 100,000, and in another folder after a hundred files."""
    ids = leader(5, first=first)
    write_log(twin.folder, ids)
    assert written_files(twin.folder) == files
    twin.take()
    assert twin.ids() == ids
    twin.assert_equal()


def test_scenario_15_a_missing_file_in_the_middle_is_no_end(twin: Twin) -> None:
    """Nothing of what follows comes in until it is there again."""
    ids = leader(3, first=99_998) + leader(100_000, first=100_001)[::20_000] + leader(3, first=200_000)
    write_log(twin.folder, ids)
    middle = twin.folder / ENTRY_LOG / "0/1"
    aside = middle.rename(twin.folder / "aside")
    with pytest.raises(MissingSegment, match="0/1 is missing") as caught:
        twin.replicate()
    assert caught.value.hint
    assert all(one < 10**9 for one in twin.ids())
    aside.rename(middle)
    twin.replicate()
    twin.assert_equal()


def test_scenario_16_two_files_grow_while_a_batch_is_under_way(twin: Twin) -> None:
    """What was planned comes in, and then the rest of both files."""
    write_log(twin.folder, leader(3, first=99_990))
    grown = False

    def grow(step: BatchStep) -> None:
        nonlocal grown
        if step is BatchStep.FILES and not grown:
            append_log(twin.folder, leader(20, first=99_993))
            grown = True

    twin.replicate(grow)
    assert grown
    assert twin.ids()[:3] == leader(3, first=99_990)
    twin.replicate()
    assert written_files(twin.folder) == ["0/0", "0/1"]
    twin.assert_equal()


def written_files(folder: Path) -> list[str]:
    entry_log = folder / ENTRY_LOG
    return sorted(str(path.relative_to(entry_log)) for path in entry_log.glob("*/*"))
