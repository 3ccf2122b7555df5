"""A folder that tables cannot be in, and a disk without room: one line at the start; a job that runs says how it is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.monitoring.progress import Phase
from pipeline.monitoring.run_file import RunFile
from sinks.storage.check import check_writable
from sinks.storage.place import placed
from sources.errors import ConfigurationError, StorageUnreachable
from tests.pipeline.operator_at_work import Operator
from tests.pipeline.test_run_state import run_of


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a disk")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def fill(disk: Path) -> Path:
    with pytest.raises(OSError, match="No space left"), (disk / "fill").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    return disk / "fill"


def test_a_disk_is_looked_at_before_spark_starts(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = placed(str(disk / "new" / "lake"))
    check_writable(lake)
    assert list((disk / "new" / "lake").iterdir()) == []
    filling = fill(disk)
    with pytest.raises(StorageUnreachable, match="No space left"):
        check_writable(lake)
    filling.unlink()
    operator = Operator(disk, capsys)
    operator.configure(master="127.0.0.1:1", remoting="127.0.0.1:1")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(ConfigurationError, match="Read-only"):
        check_writable(lake)
    said = operator.does("replicate")
    assert (said.code, len(said.err.splitlines()), f"{disk}/lake cannot be written" in said.err) == (2, 1, True)


def test_a_run_says_on_a_full_disk_that_it_waits(disk: Path) -> None:
    """If it was there before; and what cannot be written leaves what was there."""
    mine, another = RunFile(str(disk), "mine"), RunFile(str(disk), "another")
    mine.write(run_of())
    filling, waiting = fill(disk), run_of(phase=Phase.WAITING, error="x" * 8000)
    mine.write(waiting)
    for file, said in ((mine, run_of(error="x" * 80_000)), (another, run_of())):
        with pytest.raises(OSError, match="No space left"):
            file.write(said)
    assert mine.read() == waiting
    filling.unlink()
    mine.write(run_of())
    assert mine.read() == run_of()
    assert [one.name for one in (disk / "_runs").iterdir()] == ["mine.json"]
