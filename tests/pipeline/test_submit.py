"""``spark-submit`` on a standalone cluster: a master and a worker on the loopback, the code as a wheel; its script."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyspark
import pytest
from deltalake import DeltaTable

from pipeline.jars import delta_jars
from pipeline.session import NEEDED
from pipeline.submit import run
from tests.truth import Fixture

PROJECT = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "pipeline", "sources", "sinks"):
        copy = shutil.copytree if (PROJECT / name).is_dir() else shutil.copy
        copy(PROJECT / name, source / name)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)],
        check=True,
    )
    return next(folder.glob("*.whl"))


@contextmanager
def daemon(name: str, folder: Path, *arguments: str) -> Iterator[IO[str]]:
    """A daemon of Spark's, in the foreground; what it says."""
    # What Spark's own start scripts would set; a worker passes it on to its executors.
    environment = {
        **os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK), "SPARK_SCALA_VERSION": "2.13",
    }  # fmt: skip
    log = (folder / f"{name.rsplit('.', 1)[-1]}.log").open("w+")
    process = subprocess.Popen(
        ["java", "-Xmx256m", "-cp", f"{SPARK}/jars/*", name, "--host", "127.0.0.1", *arguments],
        env=environment, stdout=log, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        with Path(log.name).open() as said:
            yield said
    finally:
        process.kill()
        process.wait()
        log.close()


def wait_for(said: IO[str], pattern: str, timeout_s: float = 60) -> str:
    """The first match of `pattern` in what a daemon says."""
    import time

    deadline = time.monotonic() + timeout_s
    text = ""
    while time.monotonic() < deadline:
        text += said.read()
        found = re.search(pattern, text)
        if found:
            return found.group(0)
        time.sleep(0.1)
    raise AssertionError(f"no {pattern} in:\n{text[-3000:]}")


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
    with daemon("org.apache.spark.deploy.master.Master", tmp_path, "--port", "0", "--webui-port", "0") as master:
        url = wait_for(master, r"spark://127\.0\.0\.1:\d+")
        worker_arguments = ("--cores", "2", "--memory", "1g", "--webui-port", "0", "--work-dir", str(tmp_path), url)
        with daemon("org.apache.spark.deploy.worker.Worker", tmp_path, *worker_arguments) as worker:
            wait_for(worker, "Successfully registered")
            done = submit(url, wheel, job, tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"done at offset {fixture_550.max_offset}" in done.stdout
    table = DeltaTable(str(tmp_path / "lake" / "log"))
    assert table.to_pyarrow_dataset().count_rows() == len(fixture_550.rows)
    assert table.transaction_version("logtwin/rocketmq/test@0") == fixture_550.max_offset


def submit(url: str, wheel: Path, job: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    settings = {
        **NEEDED,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.jars": ",".join(str(jar) for jar in delta_jars()),
        "spark.pyspark.python": sys.executable,
    }
    command = [str(SPARK / "bin" / "spark-submit"), "--master", url, "--py-files", str(wheel)]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    command += [str(PROJECT / "pipeline" / "submit.py"), "--config", str(job), "--available-now"]
    # Away from the project: what the job imports comes out of the wheel.
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": "", "SPARK_HOME": str(SPARK)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


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
