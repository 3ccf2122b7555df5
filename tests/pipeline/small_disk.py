"""A small disk for a test to fill."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture
def disk() -> Iterator[Path]:
    """A disk of 2 MB, at a path that is short enough for sockets."""
    with TemporaryDirectory(dir="/tmp") as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("no right to mount a disk")
        yield Path(folder)
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path) -> Path:
    """The file that takes all the room."""
    with pytest.raises(OSError, match="No space left"), (disk / "fill").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    return disk / "fill"
