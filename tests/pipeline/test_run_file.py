"""The files in which runs say that they live: written, read, and never needed."""

from pathlib import Path

import pytest

from pipeline.monitoring.progress import Phase
from pipeline.monitoring.run_state import Run, RunFile, runs_of, runs_seen
from tests.pipeline.test_run_state import run_of


def written(warehouse: Path, *runs: Run) -> None:
    for one in runs:
        RunFile(str(warehouse), one.writer.run).write(one)


def names(warehouse: Path) -> list[str]:
    return sorted(str(path.relative_to(warehouse)) for path in warehouse.rglob("*") if path.is_file())


@pytest.mark.parametrize("uri", [False, True], ids=["path", "uri"])
def test_a_write_replaces_what_was_there(tmp_path: Path, uri: bool) -> None:
    warehouse = tmp_path / "lake ä"
    file = RunFile(f"file://{warehouse}" if uri else str(warehouse), "mine")
    assert file.read() is None
    file.write(run_of())
    file.write(run_of(phase=Phase.DONE))
    assert file.read() == run_of(phase=Phase.DONE)
    assert names(warehouse) == ["_runs/mine.json"]


def test_runs_are_those_of_jobs_and_what_cannot_be_understood_is_left_out(tmp_path: Path) -> None:
    assert runs_of(str(tmp_path)) == []
    written(tmp_path, run_of(name="a"), run_of(name="b"))
    RunFile(str(tmp_path), "verify", "_reading/rocketmq/broker-a").write(run_of(name="verify"))
    (tmp_path / "_runs/rocketmq").mkdir()
    (tmp_path / "_runs/rocketmq/broker-a.json").write_text('{"run": "of an older version"}')
    (tmp_path / "_runs/c.json").write_text("{")
    assert {one.writer.run for one in runs_of(str(tmp_path))} == {"a", "b"}


def test_a_place_that_cannot_be_reached_is_an_oserror(caplog: pytest.LogCaptureFixture) -> None:
    file = RunFile("gopher://nowhere/lake", "mine")
    with pytest.raises(OSError, match="gopher"):
        file.read()
    with pytest.raises(OSError, match="gopher"):
        file.write(run_of())
    assert runs_seen("gopher://nowhere/lake") == []
    assert "cannot see which jobs run" in caplog.text
