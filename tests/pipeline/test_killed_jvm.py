"""A job whose JVM is killed, seen from outside: what its log ends with, and who may read what the JVM has said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.pipeline.running import own_cache
from tests.truth import Fixture

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(240)]

PROJECT = Path(__file__).parents[2]


def test_the_last_line_is_a_named_error(fixture_550: Fixture, tmp_path: Path) -> None:
    cache = own_cache(tmp_path)
    (cache / "spark.log").touch(mode=0o644)
    job = tmp_path / "job.toml"
    path = fixture_550.commitlog_path
    job.write_text(f'warehouse = "{tmp_path}/lake"\n[[logs]]\nid = "rocketmq/test"\npath = "{path}"\n')
    command = [sys.executable, "-m", "pipeline", "replicate", "--config", str(job)]
    environment = os.environ | {"LOGTWIN_CACHE": str(cache)}
    with subprocess.Popen(command, cwd=PROJECT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = ""
            while "running" not in said:
                line = process.stderr.readline()
                assert line, said
                said += line
            os.kill(java_of(process.pid), signal.SIGKILL)
            said += process.stderr.read()
            assert process.wait(PATIENCE_S) in (5, 6), said
        finally:
            process.kill()
    assert said.splitlines()[-1].startswith("error "), said
    assert oct((cache / "spark.log").stat().st_mode & 0o777) == oct(0o600)


def java_of(process: int) -> int:
    for child in map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()):
        if Path(f"/proc/{child}/comm").read_text().strip() == "java":
            return child
    raise AssertionError("there is no Java")
