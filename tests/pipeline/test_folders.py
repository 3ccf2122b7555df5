"""The folder of a process's sockets is its own, and gone with it, however it ends; and who can read what it writes."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.sql.output import destination
from pipeline.system.folders import limit_rights
from tests.patience import PATIENCE_S
from tests.resident import PROJECT

_HOLD = (
    "import sys; from pipeline.system.folders import process_folder; "
    "print(process_folder(), flush=True); sys.stdin.read()"
)


def a_process(tmp: Path) -> tuple[subprocess.Popen[str], Path]:
    """One that has its folder, until its standard input ends."""
    command, environment = [sys.executable, "-c", _HOLD], {"TMPDIR": str(tmp)}
    process = subprocess.Popen(command, env=environment, stdin=-1, stdout=-1, text=True, cwd=PROJECT)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_new_process_removes_the_folder_of_a_killed_one_only(tmp_path_factory: pytest.TempPathFactory) -> None:
    tmp = tmp_path_factory.mktemp("s")
    living, its = a_process(tmp)
    killed, left = a_process(tmp)
    try:
        assert its.parent == left.parent
        assert its.parent.stat().st_mode & 0o777 == 0o700
        (left / ".a.sock").touch()
        (its / ".b.sock").touch()
        killed.send_signal(signal.SIGKILL)
        killed.wait(timeout=PATIENCE_S)
        assert left.exists()
        third, own = a_process(tmp)
        third.communicate(timeout=PATIENCE_S)
        assert not left.exists()
        assert not own.exists()
        assert (its / ".b.sock").exists()
    finally:
        for process in (living, killed):
            process.communicate(timeout=PATIENCE_S)
    assert not its.exists()


@pytest.mark.parametrize(("room_bytes", "is_used"), [(0, True), (-1, False), (-80, False)])
def test_a_folder_that_is_too_deep_for_spark_is_not_used(room_bytes: int, *, is_used: bool) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        own_bytes = len(f"/logtwin-{os.getuid()}/12345678")
        tmp = Path(short) / ("d" * (61 - own_bytes - room_bytes - len(short) - 1))
        tmp.mkdir()
        process, folder = a_process(tmp)
        process.communicate(timeout=PATIENCE_S)
    assert folder.is_relative_to(tmp) == is_used
    assert len(str(folder)) <= 61


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize(
    ("warehouse", "file"), [(0o700, 0o600), (0o750, 0o640), (0o755, 0o644), (0o770, 0o640), (0o701, 0o600)]
)
def test_a_file_has_no_more_rights_than_its_warehouse(tmp_path: Path, warehouse: int, file: int) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    lake.chmod(warehouse)
    limit_rights(lake)
    result = tmp_path / "result.csv"
    with destination(result) as sink:
        sink.write(b"n\n")
    assert oct(result.stat().st_mode & 0o777) == oct(file)


def test_beside_an_object_store_files_are_their_owners_and_a_new_warehouse_is_as_all_files(tmp_path: Path) -> None:
    limit_rights(None)
    (tmp_path / "state").touch()
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0
    os.umask(0o022)
    limit_rights(tmp_path / "lake")
    (tmp_path / "lake").mkdir()
    assert oct((tmp_path / "lake").stat().st_mode & 0o777) == oct(0o755)
