"""What a shell offers behind Tab, as bash asks for it."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from pipeline.cli import app as cli
from sinks.tables import INCIDENTS as INCIDENTS_TABLE
from tests.patience import PATIENCE_S
from tests.resident import PROJECT

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
    return {"_LOGTWIN_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}


def offered(line: str) -> list[str]:
    return CliRunner().invoke(cli.app, env=asking(line), prog_name="logtwin").stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("logtwin rep", ["replicate", "repair", "report"]),
        ("logtwin incidents e", ["explain"]),
        ("logtwin verify --lo", ["--log", "--log-format", "--log-level"]),
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


INCIDENTS = [
    ("rocketmq/broker-a", "aa10", "healed"),
    ("rocketmq/broker-a", "ab20", "open"),
    ("kafka/prod/orders/0", "ac30", "closed"),
    ("kafka/prod/orders/10", "ad40", "open"),
]


@pytest.fixture
def lossy(tmp_path: Path) -> Path:
    """A configuration whose warehouse has incidents, in several files, one of which is no more."""
    file, place = tmp_path / "lossy.toml", INCIDENTS_TABLE.path(str(tmp_path / "lake"))
    file.write_text(f'warehouse = "{tmp_path / "lake"}"\n{JOB}')
    gone = [("rocketmq/broker-a", "ae50", "open")]
    for rows, mode in ((gone, "append"), (INCIDENTS[:2], "overwrite"), (INCIDENTS[2:], "append")):
        common = {"condition": "gap", "start": 0, "end": 100}
        found = [common | dict(zip(("log_id", "id", "state"), row, strict=True)) for row in rows]
        write_deltalake(place, pa.Table.from_pylist(found, INCIDENTS_TABLE.schema), mode=mode)
    return file


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("logtwin incidents explain --config JOB a", ["ad40", "ab20", "ac30", "aa10"]),
        ("logtwin incidents explain --config JOB ac", ["ac30"]),
        ("logtwin incidents explain --config JOB b", []),
        ("logtwin incidents explain --config JOB --log kafka/prod/orders a", ["ad40", "ac30"]),
        ("logtwin incidents explain --config JOB --log kafka/prod/orders/1 a", []),
        ("logtwin incidents close --config JOB a", ["ad40", "ab20"]),
    ],
)
def test_incidents_the_open_ones_first(lossy: Path, line: str, expected: list[str]) -> None:
    assert offered(line.replace("JOB", str(lossy))) == expected


def test_without_incidents_none_is_offered(lossy: Path, job: Path) -> None:
    assert offered(f"logtwin incidents explain --config {job} a") == []
    for file in Path(INCIDENTS_TABLE.path(str(lossy.parent / "lake"))).glob("*.parquet"):
        file.unlink()
    assert offered(f"logtwin incidents explain --config {lossy} a") == []


@pytest.mark.job
def test_the_table_of_incidents_is_found_without_pyspark(lossy: Path) -> None:
    look = (
        "import sys, types\n"
        "from pipeline.cli.options import incident_ids\n"
        f"found = incident_ids(types.SimpleNamespace(params={{'config': {str(lossy)!r}}}), 'ab')\n"
        "print([name for name, _ in found], 'pyspark' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", look], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert found.stdout == "['ab20'] False\n"


def test_without_the_option_the_names_are_those_of_the_file_that_the_verb_would_take(
    job: Path, lossy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(job.parent)
    job.rename("logtwin.toml")
    assert offered("logtwin verify --log rocketmq/broker-b") == ["rocketmq/broker-b"]
    monkeypatch.setenv("LOGTWIN_CONFIG", str(lossy))
    assert offered("logtwin incidents explain ab") == ["ab20"]


@pytest.mark.parametrize("config", ["", "--config nowhere.toml ", "--config BAD "])
def test_no_configuration_offers_nothing_silently(tmp_path: Path, config: str) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("warehose = 1")
    environment = asking(f"logtwin verify {config.replace('BAD', str(bad))}--log r")
    assert CliRunner().invoke(cli.app, env=environment, prog_name="logtwin").output.strip() == ""


@pytest.mark.job
def test_the_installed_command_answers(job: Path) -> None:
    command = Path(sys.executable).with_name("logtwin")
    environment = os.environ | asking(f"logtwin status --config {job} --js")
    answer = subprocess.run([command], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert answer.stdout.split() == ["--json"]
    assert answer.stderr == ""
    # Typer looks for the shell among the processes above; a shell that has more to do stays there.
    typed = ["bash", "-c", f"'{command}' --show-completion bash; exit $?"]
    shown = subprocess.run(typed, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "_LOGTWIN_COMPLETE=complete_bash" in shown.stdout
