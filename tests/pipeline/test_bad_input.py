"""Bad input that the fault matrix has not: the error names the log and what is wrong; the exit code says whose fault it
was; nothing is written. Through the command line, as an operator meets it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.pipeline.operator_at_work import Operator
from tests.pipeline.read_back import count_of
from tests.truth import Fixture

pytestmark = pytest.mark.usefixtures("session")


@pytest.fixture
def operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Operator:
    return Operator(tmp_path, capsys)


def refused(operator: Operator, code: int, *words: object) -> None:
    said = operator.does("replicate", "--available-now")
    assert said.code == code, said.err
    for word in ("rocketmq/test", *words):
        assert str(word) in said.err, said.err
    assert count_of(operator.lake) == 0


def test_a_truncated_file(operator: Operator, fixture_550: Fixture, tmp_path: Path) -> None:
    log = shutil.copytree(fixture_550.commitlog_path, tmp_path / "commitlog")
    last = max(log.iterdir())
    with last.open("r+b") as file:
        file.truncate(fixture_550.max_offset % 1048576 - 10)
    operator.configure(path=log)
    refused(operator, 4, last.name)


def test_a_start_beyond_the_end(operator: Operator, fixture_550: Fixture) -> None:
    operator.configure(path=fixture_550.commitlog_path, starting_offset=99999999)
    refused(operator, 3, 99999999, fixture_550.max_offset)


def test_a_host_that_does_not_exist(operator: Operator) -> None:
    host = "no-such-host.invalid"
    operator.configure(master=f"{host}:10912", remoting=f"{host}:10911", connect_attempts=1)
    refused(operator, 3, host)
