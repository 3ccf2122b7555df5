"""Batch files: where they are, and which there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from sources.dister.files.layout import BatchFile, list_batches
from sources.errors import ConfigurationError


def test_files_are_listed_by_number(tmp_path: Path) -> None:
    for path in ("0/0", "0/2", "0/10", "1/100", "1/101", "12/1234"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    listed = list_batches(tmp_path)
    assert [batch.number for batch in listed] == [0, 2, 10, 100, 101, 1234]
    assert listed[1] == BatchFile(2, tmp_path / "0" / "2")
    assert listed[1].first_id == 2_000_000_000


def test_what_is_named_otherwise_is_no_batch_file(tmp_path: Path) -> None:
    for path in ("0/1", "0/01", "0/x", "0/1.bak", "0/100", "00/3", "x/4", "5", "0/99999999999"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "0" / "7").mkdir()
    assert [batch.number for batch in list_batches(tmp_path)] == [1]


def test_a_folder_that_is_none_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        list_batches(tmp_path / "log")
