"""What a shell offers behind Tab, as bash asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.cli import app as cli

JOB = """
[[logs]]
id = "rocketmq/broker-a"
path = "/data/a"

[[logs]]
id = "rocketmq/broker-b"
path = "/data/b"

[[topics]]
id = "kafka/prod/orders"
servers = "127.0.0.1:9092"

[[tables]]
name = "orders"
from = ["orders"]
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "job.toml"
    file.write_text(JOB)
    return file


def asking(line: str) -> dict[str, str]:
    """The environment in which bash asks, the cursor behind the last letter of `line`."""
    return {
        "_LOGTWIN_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }


def offered(line: str) -> list[str]:
    return CliRunner().invoke(cli.app, env=asking(line), prog_name="logtwin").stdout.split()


def test_without_a_name_it_is_the_configuration_of_the_folder(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job.parent)
    monkeypatch.delenv("LOGTWIN_CONFIG", raising=False)
    assert offered("logtwin verify --log rocketmq/broker-a") == []
    job.rename("logtwin.toml")
    assert offered("logtwin verify --log rocketmq/broker-a") == ["rocketmq/broker-a"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("logtwin rep", ["replicate", "repair", "report"]),
        ("logtwin incidents e", ["explain"]),
        ("logtwin verify --lo", ["--log"]),
        ("logtwin verify --config JOB --log rocketmq/", ["rocketmq/broker-a", "rocketmq/broker-b"]),
        ("logtwin rebuild --config JOB --log k", ["kafka/prod/orders"]),
        ("logtwin sql --config JOB --log rocketmq/broker-b", ["rocketmq/broker-b"]),
        ("logtwin get --config JOB --log rocketmq/broker-a", ["rocketmq/broker-a"]),
        ("logtwin tables rebuild --config JOB o", ["orders"]),
        ("logtwin tables check --config JOB x", []),
        ("logtwin tables show consumer_", ["consumer_lag", "consumer_offsets"]),
    ],
)
def test_verbs_options_logs_and_tables(job: Path, line: str, expected: list[str]) -> None:
    assert sorted(offered(line.replace("JOB", str(job)))) == sorted(expected)


@pytest.mark.parametrize("config", ["", "--config nowhere.toml ", "--config BAD "])
def test_nothing_is_offered_and_nothing_said_where_nothing_is_known(tmp_path: Path, config: str) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("warehose = 1")
    result = CliRunner().invoke(
        cli.app, env=asking(f"logtwin verify {config.replace('BAD', str(bad))}--log r"), prog_name="logtwin"
    )
    assert result.output.strip() == ""


def test_the_installed_command_answers(job: Path) -> None:
    command = Path(sys.executable).with_name("logtwin")
    environment = os.environ | asking(f"logtwin status --config {job} --js")
    answer = subprocess.run([command], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert answer.stdout.split() == ["--json"]
    assert answer.stderr == ""
    shown = subprocess.run(
        [command, "--show-completion", "bash"], capture_output=True, text=True, timeout=60, check=False
    )
    assert "_LOGTWIN_COMPLETE=complete_bash" in shown.stdout
