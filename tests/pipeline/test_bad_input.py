"""Bad input: the error names log, offset, expected and found, and what to do; the exit code says whose fault it was;
what is sound before it is written, and nothing else. Through the command line, as an operator meets it."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.cli.app import main
from tests.pipeline.read_back import count_of
from tests.truth import Fixture

pytestmark = pytest.mark.usefixtures("session")


def run(capsys: pytest.CaptureFixture[str], job: Path) -> tuple[int, str]:
    """``logtwin replicate --available-now``; exit code and what it said on standard error."""
    with pytest.raises(SystemExit) as ended:
        main(["replicate", "--config", str(job), "--available-now"])
    code = ended.value.code
    return (code if isinstance(code, int) else 0), capsys.readouterr().err


def job_file(folder: Path, log: str) -> Path:
    path = folder / "job.toml"
    path.write_text(f'warehouse = "{folder}/lake"\n[[logs]]\nid = "rocketmq/test"\n{log}\n')
    return path


def rows_written(folder: Path) -> int:
    return count_of(folder / "lake")


def copy_of(fixture: Fixture, folder: Path) -> Path:
    shutil.copytree(fixture.commitlog_path, folder / "commitlog")
    return folder / "commitlog"


def overwrite(log: Path, offset: int, data: bytes) -> None:
    """Change bytes of a log of files of 1 MiB."""
    with (log / f"{offset // 1048576 * 1048576:020d}").open("r+b") as file:
        file.seek(offset % 1048576)
        file.write(data)


def records_before(fixture: Fixture, offset: int) -> int:
    return sum(row["physical_offset"] < offset for row in fixture.rows)


def a_message(fixture: Fixture, after: int) -> dict[str, int]:
    return next(row for row in fixture.rows if row["physical_offset"] > after and row.get("body_len_raw", 0) > 100)


def flip_body(fixture: Fixture, log: Path) -> int:
    row = a_message(fixture, 1_500_000)
    at = row["physical_offset"] + 90
    overwrite(log, at, bytes([fixture.log[at] ^ 0xFF]))
    return row["physical_offset"]


def flip_magic(fixture: Fixture, log: Path) -> int:
    row = a_message(fixture, 1_500_000)
    overwrite(log, row["physical_offset"] + 4, b"\x00")
    return row["physical_offset"]


def flip_length(fixture: Fixture, log: Path) -> int:
    row = a_message(fixture, 1_500_000)
    overwrite(log, row["physical_offset"] + 3, bytes([fixture.log[row["physical_offset"] + 3] ^ 0x01]))
    return row["physical_offset"]


@pytest.mark.parametrize("damage", [flip_body, flip_magic, flip_length])
def test_a_flipped_byte(
    fixture_550: Fixture,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Fixture, Path], int],
) -> None:
    log = copy_of(fixture_550, tmp_path)
    offset = damage(fixture_550, log)
    code, said = run(capsys, job_file(tmp_path, f'path = "{log}"'))
    assert code == 4
    assert "rocketmq/test" in said
    assert "expected" in said
    assert "found" in said
    if damage is not flip_length:  # where a wrong length leads, something else is found first
        assert str(offset) in said
    assert rows_written(tmp_path) == records_before(fixture_550, offset)


def test_a_truncated_file(fixture_550: Fixture, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = copy_of(fixture_550, tmp_path)
    last = sorted(log.iterdir())[-1]
    with last.open("r+b") as file:
        file.truncate(fixture_550.max_offset % 1048576 - 10)
    code, said = run(capsys, job_file(tmp_path, f'path = "{log}"'))
    assert code == 4
    assert last.name in said
    assert "rocketmq/test" in said
    assert rows_written(tmp_path) == 0


def test_a_missing_middle_file(fixture_550: Fixture, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = copy_of(fixture_550, tmp_path)
    (log / "00000000000001048576").unlink()
    code, said = run(capsys, job_file(tmp_path, f'path = "{log}"'))
    assert code == 4
    assert "00000000000001048576" in said
    assert rows_written(tmp_path) == records_before(fixture_550, 1048576)


def test_a_start_beyond_the_end(fixture_550: Fixture, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = job_file(tmp_path, f'path = "{fixture_550.commitlog_path}"\nstarting_offset = 99999999')
    code, said = run(capsys, job)
    assert code == 3
    assert "99999999" in said
    assert str(fixture_550.max_offset) in said
    assert rows_written(tmp_path) == 0


def test_an_unreachable_master(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can take it, nobody answers
        port = taken.getsockname()[1]
        log = f'master = "127.0.0.1:{port}"\nremoting = "127.0.0.1:{port}"\nconnect_attempts = 1'
        code, said = run(capsys, job_file(tmp_path, log))
    assert code == 3
    assert f"127.0.0.1:{port}" in said
    assert "rocketmq/test" in said
    assert rows_written(tmp_path) == 0


def test_a_host_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = 'master = "no-such-host.invalid:10912"\nremoting = "no-such-host.invalid:10911"\nconnect_attempts = 1'
    code, said = run(capsys, job_file(tmp_path, log))
    assert code == 3
    assert "no-such-host.invalid" in said
    assert rows_written(tmp_path) == 0


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("pth = '/data'", ["pth", "'path'"]),
        ("master = '127.0.0.1:10912'", ["remoting"]),
        ("path = '/no/such/folder'", ["/no/such/folder"]),
        ("path = '/data'\nstarting_offset = 'newest'", ["starting_offset", "newest"]),
    ],
)
def test_a_configuration_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], log: str, words: list[str]
) -> None:
    code, said = run(capsys, job_file(tmp_path, log))
    assert code == 2
    for word in words:
        assert word in said
    assert rows_written(tmp_path) == 0
