from __future__ import annotations

from pathlib import Path

import pytest

from sources.group import standing
from sources.group.standing import ReadingPlace, Standing
from sources.offsets import Offset

ONE = Standing({"rocketmq/a": ReadingPlace(Offset(5), 2), "rocketmq/b": ReadingPlace(None)}, budget_bytes=1000)
STOPPING = Standing({}, budget_bytes=1000, is_stopping=True)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "standing"
    for said in (ONE, STOPPING, ONE):
        standing.write(path, said)
        assert standing.file_at(path).read() == said
    with path.open() as held:  # by who reads it just then: it stays whole
        standing.write(path, STOPPING)
        assert held.read() != path.read_text()
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_the_same_is_the_same_object(tmp_path: Path) -> None:
    file = standing.file_at(tmp_path / "standing")
    standing.write(tmp_path / "standing", ONE)
    first = file.read()
    standing.write(tmp_path / "standing", ONE)
    assert file.read() is first


def test_a_file_of_another_kind_is_said(tmp_path: Path) -> None:
    (tmp_path / "standing").write_text("[")
    with pytest.raises(ValueError, match="Expecting"):
        standing.file_at(tmp_path / "standing").read()
