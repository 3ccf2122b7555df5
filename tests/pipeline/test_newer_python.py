"""The wheel with a newer Python and a newer Java than the other tests have: the shortest whole way.

A Java 21 is looked for where Linux keeps them, and in JAVA_HOME_21.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pipeline.spark.jars import session_jars
from tests.truth import Fixture

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

PYTHON = "3.13"
CHOSEN = ("PYTHONPATH", "LOGTWIN_CONFIG", "LOGTWIN_JARS", "SPARK_SUBMIT_OPTS", "PYSPARK_PYTHON")


def newer_python() -> str:
    """That of the PATH, or pyenv's, whose command is on the PATH even if it is not chosen."""
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for found in (shutil.which(f"python{PYTHON}"), *map(str, installed.glob(f"{PYTHON}.*/bin/python"))):
        if found and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            return found
    pytest.skip(f"no Python {PYTHON}")


def java_home(version: str) -> str:
    installed = (str(one.parent.parent) for one in Path("/usr/lib/jvm").glob(f"*-{version}-*/bin/java"))
    found = os.environ.get(f"JAVA_HOME_{version}") or next(installed, None)
    return found or pytest.skip(f"no Java {version}")


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and all that it depends on."""
    home = tmp_path_factory.mktemp("newer")
    subprocess.run([newer_python(), "-m", "venv", home], check=True)
    subprocess.run([home / "bin" / "pip", "install", "--quiet", f"{wheel}[all]"], check=True)
    session_jars()  # one download for all tests
    return home / "bin"


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("java", ["17", "21"])
def test_a_log_by_path_is_replicated_proven_and_queried(
    programs: Path, java: str, fixture_550: Fixture, tmp_path: Path
) -> None:
    chosen = {"JAVA_HOME": java_home(java), "JDK_JAVA_OPTIONS": "-Xlog:gc+init:file=java-%p.log"}
    environment = {name: value for name, value in os.environ.items() if name not in CHOSEN} | chosen

    def ran(*command: str) -> str:
        given = [str(programs / "logtwin"), *command]
        done = subprocess.run(given, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    (tmp_path / "logtwin.toml").write_text(
        f'warehouse = "lake"\n[[logs]]\nid = "rocketmq/b"\npath = "{fixture_550.commitlog_path}"\n'
    )
    ran("replicate", "--available-now")
    assert "equal" in ran("verify")
    rows = ran("sql", "--format", "csv", "-e", "SELECT count(*) AS n FROM log")
    assert rows.split() == ["n", str(len(fixture_550.rows))]
    versions = [re.findall(r"Version: (\d+)", file.read_text()) for file in tmp_path.glob("java-*.log")]
    assert versions
    assert all(version == [java] for version in versions)
