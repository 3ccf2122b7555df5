"""The verbs that answer from a replica's map, and what brings the map in step beside the stream."""

import json
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import load
from pipeline.inspect.selection import ConfiguredLog
from pipeline.operate.backfill import Wanted, run_backfill
from pipeline.operate.maintain import Maintenance
from sinks.batch.proof import BatchStep
from sources.dister.embedded.leader_log import LeaderLog
from tests.pipeline.job_toml import job_toml
from tests.pipeline.operator_at_work import Said, run
from tests.pipeline.running import replicate_now
from tests.sinks.dister_logs import bring, entries, live, replayed
from tests.sinks.killed import Killed, dying_after

TEXT = ":smile: [bold]ключ[/]\nline 2"


def job_file(folder: Path, **leaders: Path) -> Path:
    return job_toml(folder, *({"id": f"dister/{group}", "path": leader} for group, leader in leaders.items()))


@pytest.fixture(scope="module")
def replicated(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replicated")
    with LeaderLog(folder / "small") as small, LeaderLog(folder / "large") as large:
        small.set({"b": "2", "a": TEXT, "gone": "1"})
        small.remove(["gone"], rnd=1)
        bring(session, folder / "lake", small, group="small")
        large.set({f"key-{number:04d}": str(number) for number in range(1001)})
        bring(session, folder / "lake", large, group="large")
    return job_file(folder, small=folder / "small", large=folder / "large")


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[LeaderLog]:
    with LeaderLog(tmp_path / "leader") as writer:
        yield writer


def ask(capsys: pytest.CaptureFixture[str], job: Path, log: str, *arguments: object) -> Said:
    return run(capsys, *arguments, "--config", job, "--log", log)


def test_118_get_prints_the_value_as_it_is(replicated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """DI-118."""
    code, out, err = ask(capsys, replicated, "dister/small", "get", "a")
    assert (code, out) == (0, TEXT + "\n")
    assert err == "dister/small: as of offset 20002, epoch 0\n"


@pytest.mark.parametrize("key", ["gone", "never there", ""])
def test_118_a_missing_key_prints_nothing_and_fails(
    replicated: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    """DI-118."""
    code, out, _ = ask(capsys, replicated, "dister/small", "get", key)
    assert (code, out) == (1, "")


def test_118_get_all_prints_the_map_by_key(replicated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """DI-118."""
    code, out, err = ask(capsys, replicated, "dister/small", "get-all")
    assert (code, out) == (0, f"a={TEXT}\nb=2\n")
    assert err == "dister/small: as of offset 20002, epoch 0\n"
    _, out, _ = ask(capsys, replicated, "dister/small", "get-all", "--json")
    assert json.loads(out) == {"a": TEXT, "b": "2"}


def test_118_more_than_1000_keys_are_refused_unless_told_otherwise(
    replicated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DI-118."""
    code, out, err = ask(capsys, replicated, "dister/large", "get-all")
    assert (code, out) == (2, "")
    assert "found 1001" in err
    assert "--no-limit" in err
    code, out, _ = ask(capsys, replicated, "dister/large", "get-all", "--no-limit")
    assert (code, len(out.splitlines())) == (0, 1001)


@pytest.mark.spark
def test_maintenance_leaves_the_files_of_the_map_to_the_job(spark: SparkSession, replicated: Path) -> None:
    steps = Maintenance(spark, load(replicated), dry_run=True).run()
    merged = {one.table for one in takewhile(lambda one: one.step == "merge", steps)}
    assert merged == {"log", "ledger"}


def test_an_ambiguous_log_is_refused(replicated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "get", "a", "--config", replicated)
    assert (code, out) == (2, "")
    assert "found dister/small, dister/large" in err
    assert run(capsys, "get", "a", "--config", job_toml(tmp_path, {"path": tmp_path}))[0] == 2


def test_nothing_is_replicated_yet(session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "get", "a", "--config", job_file(tmp_path, test=tmp_path / "leader"))
    assert (code, out) == (2, "")
    assert "nothing of this log is replicated yet" in err


def test_a_map_that_is_behind_its_log_says_so_and_the_job_catches_up(
    session: SparkSession, tmp_path: Path, leader: LeaderLog, capsys: pytest.CaptureFixture[str]
) -> None:
    leader.set({"a": "1"}, rnd=7)
    bring(session, tmp_path / "lake", leader)
    leader.set({"a": "2"}, rnd=1)
    with pytest.raises(Killed):
        bring(session, tmp_path / "lake", leader, on_step=dying_after(BatchStep.COMMIT))
    job = job_file(tmp_path, test=leader.folder)
    code, out, err = run(capsys, "get", "a", "--config", job)
    assert (code, out) == (0, "1\n")
    assert err.startswith("dister/test: as of offset 10008, epoch 0; the table log is at 20002")

    leader.set({"b": "3"}, rnd=1)
    replicate_now(session, load(job))
    assert live(tmp_path / "lake") == replayed(leader) == {"a": "2", "b": "3"}


def test_what_a_backfill_brings_is_older_than_what_is_there(
    session: SparkSession, tmp_path: Path, leader: LeaderLog
) -> None:
    leader.set({"a": "old", "b": "old", "c": "old"}, rnd=7)
    leader.set({"a": "new"}, rnd=1)
    leader.remove(["b"], rnd=1)
    lake, config = tmp_path / "lake", load(job_file(tmp_path, test=leader.folder))
    bring(session, lake, leader, start=10008)
    assert live(lake) == {"a": "new"}
    filled = run_backfill(session, config, ConfiguredLog.alone(config.logs[0]), Wanted())
    assert filled.records == 1
    assert entries(lake) == {"a": ("new", 20001, False), "b": (None, 30001, True), "c": ("old", 10007, False)}
