"""Where machine code is kept, and what happens where it cannot be."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.resident import PROJECT

pytestmark = pytest.mark.nightly

MODULE = """
import numpy as np
from sources.decoding.compiled import INTS, compiled

@compiled(INTS)
def total(values):
    found = 0
    for value in values:
        found += value
    return found

if __name__ != "__main__":
    print(total(np.arange(4)), sum(total.stats.cache_hits.values()), sum(total.stats.cache_misses.values()))
"""
COMPILED, LOADED = "6 0 1", "6 1 0"


def imported(where: Path, **environment: str) -> str:
    """What the module prints: the total, how often machine code was loaded, and how often made."""
    done = subprocess.run(
        [sys.executable, "-c", "import counted"],
        cwd=where.parent,
        env={**os.environ, "PYTHONPATH": f"{where}:{PROJECT}", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "counted.py").write_text(MODULE)
    return tmp_path / "code"


def test_machine_code_is_loaded_until_its_file_changes(folder: Path) -> None:
    assert [imported(folder), imported(folder)] == [COMPILED, LOADED]
    (folder / "counted.py").write_text(MODULE.replace("found = 0", "found = np.int64(0)"))
    assert [imported(folder), imported(folder)] == [COMPILED, LOADED]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The module with its machine code."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "counted.py").write_text(MODULE)
    assert imported(folder) == COMPILED
    return folder


@pytest.mark.parametrize(("ending", "left"), [("nbi", 0), ("nbi", 200), ("nbc", 0), ("nbc", 200)])
def test_half_a_file_of_machine_code_is_no_obstacle(compiled: Path, tmp_path: Path, ending: str, left: int) -> None:
    folder = Path(shutil.copytree(compiled, tmp_path / "code"))
    (file,) = (folder / "__pycache__").glob(f"*.{ending}")
    os.truncate(file, left)
    assert imported(folder).startswith("6 ")


@pytest.mark.parametrize("name", ["some-1.0-py3-none-any.whl", "some.zip"])
def test_machine_code_of_an_archive_is_kept_for_the_user(folder: Path, name: str) -> None:
    archive, home = folder.parent / name, folder.parent / "home"
    with zipfile.ZipFile(archive, "w") as writing:
        writing.write(folder / "counted.py", "counted.py")
    shutil.rmtree(folder)
    of_user = {"HOME": str(home), "XDG_CACHE_HOME": str(home)}
    assert [imported(archive, **of_user), imported(archive, **of_user)] == [COMPILED, LOADED]
    assert any(home.rglob("*.nbc"))
