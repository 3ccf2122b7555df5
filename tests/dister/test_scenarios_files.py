"""Scenario 14: a log of several files. 11, 12, 13 and 15, lines that are torn, glued or short and files that
are missing, are the reader's: tests/sources/dister/test_log.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from sources.dister.files.layout import ENTRY_LOG
from tests.dister.twin import Twin
from tests.dister_folders import leader, write_log


@pytest.mark.parametrize(("first", "files"), [(99_998, ["0/0", "0/1"]), (9_999_998, ["0/99", "1/100"])])
def test_scenario_14_the_log_goes_on_in_the_next_file(twin: Twin, first: int, files: list[str]) -> None:
    """DI-41: at index 100,000, and in another folder after a hundred files."""
    ids = leader(5, first=first)
    write_log(twin.folder, ids)
    assert written_files(twin.folder) == files
    twin.take()
    assert twin.ids() == ids
    twin.assert_equal()


def written_files(folder: Path) -> list[str]:
    entry_log = folder / ENTRY_LOG
    return sorted(str(path.relative_to(entry_log)) for path in entry_log.glob("*/*"))
