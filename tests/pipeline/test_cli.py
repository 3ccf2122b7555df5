"""The command line, verb by verb, as somebody meets it who has only --help."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline import submit
from pipeline.cli.app import _place
from pipeline.demo.embedded_master import READY
from pipeline.monitoring.progress import PartitionProgress, Phase
from pipeline.monitoring.run_state import RunFile
from sources.access.address import Address
from sources.offsets import Offset
from sources.rocketmq.wire.client import RemotingClient
from tests.pipeline.masters import embedded_master
from tests.pipeline.operator_at_work import Operator, run
from tests.pipeline.read_back import assert_whole
from tests.pipeline.sample_progress import PROGRESS
from tests.pipeline.test_fixture_logs import assert_truth
from tests.pipeline.test_run_state import run_of
from tests.truth import Fixture

PROJECT = Path(__file__).parents[2]

SETTINGS = """
[embedded_master]
port = 0
ha_port = 0
role = "SYNC_MASTER"
slave_timeout_s = 0.25
fall_behind_max_bytes = 4711
transfer_batch_bytes = 8192
sync_flush = true
"""


def test_help_groups_the_verbs_and_cuts_no_summary(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what somebody wants to do; those of dister are marked as such."""
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(capsys, "--help")
    groups = dict(re.findall(r"^(\S[^\n]*):\n((?:  .*\n)+)", out, re.M))
    verbs = {title: re.findall(r"^  (\S+)", text, re.M) for title, text in groups.items() if title != "Options"}
    assert {title: sorted(names) for title, names in verbs.items()} == {
        "Replicate": ["replicate", "status"],
        "Prove it and heal it": ["backfill", "coverage", "incidents", "maintain", "rebuild", "repair", "verify"],
        "Query it": ["report", "sql", "tables"],
        "dister, a key-value store": ["get", "get-all", "leader"],
        "Try it without a broker": ["demo", "master", "send"],
        "Set it up": ["config", "docs", "files", "init", "jars", "warm"],
    }
    for words in ([], ["tables"], ["incidents"], ["leader"]):
        assert "..." not in run(capsys, *words, "--help")[1].replace("[ARGS]...", "")


def test_it_says_its_version_and_takes_h_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"logtwin {version('logtwin')}\n", "")
    for words in (["-h"], ["tables", "-h"], ["incidents", "list", "-h"], ["sql", "-h"]):
        assert run(capsys, *words)[:2] == run(capsys, *words[:-1], "--help")[:2]


def test_the_configuration_is_what_the_environment_names_or_is_in_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOGTWIN_CONFIG", raising=False)
    code, _, said = run(capsys, "incidents", "list")
    assert (code, "no configuration is named; expected --config FILE, the file in LOGTWIN_CONFIG" in said) == (2, True)
    for number, name in enumerate(("logtwin.toml", "other.toml")):
        Path(name).write_text(f'[[logs]]\nid = "rocketmq/{number}"\npath = "/data/{number}"\n')
    assert log_of(capsys) == "rocketmq/0"
    monkeypatch.setenv("LOGTWIN_CONFIG", "other.toml")
    assert log_of(capsys) == "rocketmq/1"
    assert log_of(capsys, "--config", "logtwin.toml") == "rocketmq/0"


def log_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    _, out, _ = run(capsys, "coverage", "--json", *arguments)
    (log,) = json.loads(out)["logs"]
    return str(log["log"])


@pytest.mark.spark
def test_replicate_then_status(spark: SparkSession, operator: Operator, fixture_550: Fixture, tmp_path: Path) -> None:
    end = fixture_550.max_offset
    with embedded_master(tmp_path / "store", commitlog=fixture_550.commitlog_path) as master:
        operator.configure(**master.options)
        before = status(operator)
        said = operator.replicates()
        after = status(operator)
    assert_truth(operator.lake, fixture_550)
    assert_whole(operator.lake, fixture_550.log)
    assert f"done at offset {end}, {len(fixture_550.rows):,} records" in said.out
    assert (before["position"], before["lag_bytes"]) == (None, end)
    assert (before["master_minimum"], before["master_maximum"]) == (0, end)
    assert (after["position"], after["lag_bytes"]) == (end, 0)
    assert (after["epoch"], after["first"]) == (0, 0)
    assert (before["running"], before["phase"]) == (False, None)
    assert (after["running"], after["phase"], after["last_error"]) == (False, "done", None)
    assert (after["role"], after["master"], after["master_role"]) == ("slave", master.options["master"], "ASYNC_MASTER")
    # the master is gone now: that is part of the status, not an error
    gone = status(operator)
    assert gone["position"] == end
    assert master.options["remoting"] in str(gone["master_error"])
    lines = operator.must("status").out.splitlines()
    assert f"  committed           {end:,}, from 0" in [line.rstrip() for line in lines]
    (shown,) = (line for line in lines if line.startswith("  master says"))
    assert shown.rstrip().endswith(str(gone["master_error"])[-20:])  # no terminal: nothing is folded
    said = operator.does("status", "--check")
    assert (said.code, said.out.splitlines()[0]) == (3, "rocketmq/test")  # the job is done; its master is gone
    assert "rocketmq/test: its master cannot be asked" in said.err


@pytest.mark.parametrize("session", ["plain"], indirect=True)
def test_a_log_of_another_job_has_to_be_taken_over(
    session: SparkSession, operator: Operator, fixture_550: Fixture
) -> None:
    operator.configure(path=fixture_550.commitlog_path)
    another = run_of(phase=Phase.WAITING, space="elsewhere", now=datetime.now(UTC), log_id="rocketmq/test")
    RunFile(str(operator.lake), "another").write(another)
    said = operator.fails(5, "AlreadyRunning")
    assert "on host-1" in said.err
    assert "--take-over" in said.err
    assert not (operator.lake / "log").exists()
    assert status(operator)["host"] == "host-1"
    said = operator.must("replicate", "--available-now", "--take-over")
    assert f"done at offset {fixture_550.max_offset}" in said.out


def status(operator: Operator) -> dict[str, object]:
    (log,) = json.loads(operator.must("status", "--json").out)["logs"]
    assert log["id"] == "rocketmq/test"
    found: dict[str, object] = log
    return found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--access-key", "hunter2"), "access_key is not the place of a secret"),
        (("--access-key", "env:USER"), "access_key without secret_key"),
        (("--tls-ca-file", "ca.pem"), "tls_ca_file has no effect without tls"),
        (("--no-tls-check-hostname",), "tls_check_hostname has no effect without tls"),
        (("--tls", "--tls-ca-file", "/no/ca.pem"), "/no/ca.pem"),
    ],
)
def test_send_is_told_who_sends_as_a_log_is(
    given: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "send", "--to", "127.0.0.1:1", "--count", "1", *given)
    assert code == 2
    assert said in " ".join(err.split())
    assert "hunter2" not in err


def test_where_nothing_is_there_yet_the_last_line_says_none() -> None:
    nothing = replace(PROGRESS, position=None)
    assert _place(nothing) == "offset none"
    partitions = {0: PartitionProgress(), 1: PartitionProgress(position=Offset(7))}
    assert _place(replace(nothing, partitions=partitions)) == "offsets 0: none, 1: 7"


def test_what_any_verb_says_can_go_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a verb it replicates; what a verb fails with is the exit code, and no result."""

    def submitted(*words: str) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as ended:
            submit.run([*words])
        return (ended.value.code, *capsys.readouterr())

    answer = tmp_path / "answer"
    assert submitted("--output", str(answer), "status", "--help")[:2] == (0, "")
    assert "Show the state of each replica" in answer.read_text()
    code, _, err = submitted("--output", str(answer), "status", "--config", "nowhere.toml")
    assert (code, "nowhere.toml" in err, answer.read_text()) == (2, True, "")
    assert "Replicate every log" in submitted("--available-now", "--help")[1]


@contextmanager
def master(folder: Path, *options: str) -> Iterator[Address]:
    """A master as a process of its own, configured by SETTINGS and `options`: where it takes requests."""
    (folder / "job.toml").write_text(SETTINGS)
    command = [sys.executable, "-m", "pipeline", "master", "--config", str(folder / "job.toml")]
    command += ["--store", str(folder / "store"), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            ready = re.search(READY, process.stdout.readline())
            assert ready is not None
            yield Address.parse(ready["remoting"])
        finally:
            process.terminate()
            process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.job
def test_the_configuration_reaches_the_master_and_the_command_line_goes_over_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It takes messages from ``logtwin send``, and stops cleanly."""
    with master(tmp_path, "--role", "ASYNC_MASTER", "--in-sync-replicas", "2") as address:
        said = run(capsys, "send", "--to", address, "--count", "200", "--rate-per-s", "0")
        assert (said.code, said.out.startswith("200 messages")) == (0, True)
        assert "SEND_OK" in said.out
        assert "SLAVE" not in said.out  # without waiting for one
        with RemotingClient(address) as client:
            told, end = client.broker_config(), client.commit_log_bounds().end
    expected = {
        "brokerRole": "ASYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "250", "haSlaveFallbehindMax": "4711",
        "haTransferBatchSize": "8192", "flushDiskType": "SYNC_FLUSH",
    }  # fmt: skip
    assert expected.items() <= told.items()
    assert end > 100_000
    assert any((tmp_path / "store" / "commitlog").iterdir())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--role", "SLAVE"), "'SLAVE' is not one of"),
        (("--in-sync-replicas", "0"), "'--in-sync-replicas'"),
        (("--name-server", "nowhere"), "not an address"),
        (("--name-server", "127.0.0.1:9876", "--host", "0.0.0.0"), "an address of its own"),  # noqa: S104
    ],
)
def test_what_cannot_be_is_a_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], why: str
) -> None:
    said = run(capsys, "master", "--store", tmp_path, "--port", "0", "--ha-port", "0", *options)
    assert (said.code, why in " ".join(said.err.split())) == (2, True), said.err
