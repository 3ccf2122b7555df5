"""The script that ``spark-submit`` runs. To a cluster, with the code as a wheel: `test_cluster`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pipeline.spark.jars import delta_jars
from pipeline.submit import run
from tests.class_archives import spark_options
from tests.patience import wait_until
from tests.pipeline.standalone import PROJECT, SPARK

_KILLED = """
import os, signal, sys
from pipeline.spark.session import build_session
spark = build_session({})
rows = spark.range(5).mapInArrow(lambda rows: rows, "id long").toArrow()
with open(sys.argv[1], "w") as done:  # what it prints passes through the JVM
    done.write(f"read {len(rows)}")
os.kill(os.getppid(), signal.SIGKILL)  # spark-submit, the JVM
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A folder for temporary files with a path that is short enough for Spark's sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        yield Path(short)


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_sockets_of_a_killed_driver_go_at_the_next_start(short_tmp: Path) -> None:
    tmp = short_tmp
    script = tmp / "job.py"
    script.write_text(_KILLED)
    environment = {**os.environ, "TMPDIR": str(tmp), "PYTHONPATH": str(PROJECT), "SPARK_HOME": str(SPARK)}
    environment["SPARK_SUBMIT_OPTS"] = spark_options()
    command = [str(SPARK / "bin" / "spark-submit"), "--master", "local[1]", "--driver-memory", "512m"]
    command += ["--jars", ",".join(map(str, delta_jars())), "--driver-java-options", f"-Djava.io.tmpdir={tmp}"]
    command += ["--conf", f"spark.pyspark.python={sys.executable}", str(script), str(tmp / "done")]
    ended = subprocess.run(command, env=environment, stdout=-1, stderr=subprocess.STDOUT, text=True, timeout=200)
    assert (tmp / "done").exists(), ended.stdout[-3000:]
    assert (tmp / "done").read_text() == "read 5"
    wait_until(lambda: not [one for one in psutil.process_iter() if tmp_is_of(one, tmp)], "the end of its workers")
    folders = tmp / f"logtwin-{os.getuid()}"
    assert {one.parent.parent for one in tmp.rglob("*.sock")} == {folders}
    again = "from pipeline.system.process_folder import process_folder; process_folder()"
    subprocess.run([sys.executable, "-c", again], env=environment, cwd=PROJECT, check=True)
    assert list(tmp.rglob("*.sock")) == []


def tmp_is_of(process: psutil.Process, tmp: Path) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.environ().get("TMPDIR") == str(tmp))
    return False


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
