"""The script that ``spark-submit`` runs. To a cluster, with the code as a wheel: `test_cluster`."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.submit import run


def test_what_any_verb_says_can_go_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["--output", str(tmp_path / "answer"), "status", "--help"])
    assert ended.value.code == 0
    assert "Show the state of each replica" in (tmp_path / "answer").read_text()
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
