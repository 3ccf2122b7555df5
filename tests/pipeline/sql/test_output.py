"""Where results go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.sql.output import destination
from sources.errors import ConfigurationError


def test_a_file_is_replaced_once_all_is_written(tmp_path: Path) -> None:
    file = tmp_path / "result.csv"
    file.write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt), destination(file) as sink:
        sink.write(b"half")
        raise KeyboardInterrupt
    with destination(file) as sink:
        sink.write(b"after")
        sink.flush()
        assert file.read_bytes() == b"before"
    assert file.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [file]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with destination(pipe) as sink:
            sink.write(b"rows")
        assert os.read(reader, 100) == b"rows"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize("place", ["missing/result.csv", "."])
def test_a_file_that_cannot_be_written_is_a_clear_error(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot write") as caught, destination(tmp_path / place):
        pass
    assert str(tmp_path) in str(caught.value)
