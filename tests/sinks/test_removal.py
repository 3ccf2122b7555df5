"""Files of a folder removed on a local disk; on S3: tests/objectstore/test_requests.py."""

from pathlib import Path

import pytest

from sinks.storage.hadoop import remove_files

NAMES = ["a", "gone", "resists", "z"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`resists` is no file, and `gone` is not there."""
    for name in ("a", "z", "other"):
        (tmp_path / name).touch()
    (tmp_path / "resists").mkdir()
    return tmp_path


def test_what_comes_after_one_that_resists_stays_unless_told_to_go_on(folder: Path) -> None:
    with pytest.raises(OSError):
        remove_files(None, str(folder), NAMES)
    assert sorted(one.name for one in folder.iterdir()) == ["other", "resists", "z"]
    remove_files(None, str(folder), NAMES, past_what_resists=True)
    assert sorted(one.name for one in folder.iterdir()) == ["other", "resists"]
