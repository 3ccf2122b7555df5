"""``spark-submit`` on a standalone cluster: its workers have the code only as a wheel; and its script."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from pipeline.submit import run
from tests.pipeline.standalone import cluster, submitted
from tests.truth import Fixture


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_submitted_job_replicates_with_tasks_in_another_process(
    fixture_550: Fixture, tmp_path: Path, wheel: Path
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(
        f'warehouse = "{tmp_path}/lake"\n[[logs]]\nid = "rocketmq/test"\npath = "{fixture_550.commitlog_path}"\n'
        "split_bytes = 1000000\n"
    )
    with_ui = {"spark.ui.enabled": "true", "spark.ui.port": "0"}
    with (
        cluster(tmp_path / "cluster", cores=2) as one,
        submitted(one, wheel, job, properties=with_ui) as done,
    ):
        assert done.ended() == 0, done.errors.read_text()[-4000:]
    assert "service 'SparkUI'" in done.errors.read_text()  # logtwin turns it off: what is submitted goes over that
    assert f"done at offset {fixture_550.max_offset}" in done.output.read_text()
    table = DeltaTable(str(tmp_path / "lake" / "log"))
    assert table.to_pyarrow_dataset().count_rows() == len(fixture_550.rows)
    assert table.transaction_version("logtwin/rocketmq/test@0") == fixture_550.max_offset


def test_what_any_verb_says_can_go_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["--output", str(tmp_path / "answer"), "status", "--help"])
    assert ended.value.code == 0
    assert "Say how each replica stands" in (tmp_path / "answer").read_text()
    assert capsys.readouterr().out == ""


def test_what_a_verb_fails_with_is_the_exit_code_and_no_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["--output", str(tmp_path / "answer.json"), "status", "--config", "nowhere.toml"])
    assert ended.value.code == 2
    assert "nowhere.toml" in capsys.readouterr().err
    assert (tmp_path / "answer.json").read_text() == ""


def test_without_a_verb_it_replicates(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["--available-now", "--help"])
    assert "Replicate every log" in capsys.readouterr().out
