"""What other programs import: the package `logtwin`, from the wheel alone."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from pyspark.sql import SparkSession

import logtwin
from pipeline.version import own_version
from sources.errors import ConfigurationError
from sources.extras import EXTRA_OF
from tests.pipeline.standalone import bare_python
from tests.sinks.batches import opened, ranges
from tests.sinks.memory_master import BROKER_A, MemoryMaster
from tests.truth import Fixture

PROGRAM = """
import sys
from logtwin import __version__, register, register_as_of, register_source
print(__version__, "pyspark" in sys.modules)
from logtwin import *
"""

# As if these packages had never been installed: this environment has them all.
WITHOUT_EXTRAS = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {set(EXTRA_OF) - {"pygments"}}:  # Rich brings Pygments
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""

EVERYTHING = """
from importlib import import_module
from pkgutil import walk_packages
import logtwin, pipeline.verify, sinks, sources

names = ["pipeline.cli.app", "pipeline.job.replicate"]
for package in (logtwin, pipeline.verify, sinks, sources):
    names += [found.name for found in walk_packages(package.__path__, package.__name__ + ".")]
names = [name for name in names if not name.startswith("sources.kafka")]
for name in names:
    import_module(name)
print(len(names))
"""

TOPIC = """
warehouse = "lake"
[[topics]]
id = "kafka/prod/orders"
servers = "127.0.0.1:1"
"""


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of an environment with the wheel, and with what it depends on, but without any extra."""
    python = bare_python(tmp_path_factory.mktemp("environment"))
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", wheel],
        check=True,
    )
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    (packages / "without_extras.py").write_text(WITHOUT_EXTRAS)
    (packages / "without_extras.pth").write_text("import without_extras\n")  # a distribution may have a sitecustomize
    return python


def ran(
    folder: Path, *command: str | Path, stdin: IO[bytes] | int = subprocess.DEVNULL
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LOGTWIN_CONFIG")}
    return subprocess.run(
        command, cwd=folder, env=environment, stdin=stdin, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.nightly
def test_the_installed_wheel_imports_no_pyspark(python: Path, tmp_path: Path) -> None:
    done = ran(tmp_path, python, "-c", PROGRAM)
    assert done.stdout.split() == [own_version(), "False"]


@pytest.mark.nightly
def test_without_extras_everything_but_kafka_can_be_imported(python: Path, tmp_path: Path) -> None:
    """All that reads and writes, but for Kafka; and the command line of the driver."""
    done = ran(tmp_path, python, "-c", EVERYTHING)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("verb", "extra"),
    [
        (("replicate",), "kafka"),
        (("status",), "kafka"),
        (("demo", "--master", "kafka"), "kafka"),
        (("report",), "report"),
        (("sql",), "sql"),
    ],
    ids=str,
)
def test_what_an_extra_brings_is_missed_by_its_name(
    python: Path, tmp_path: Path, verb: tuple[str, ...], extra: str
) -> None:
    (tmp_path / "logtwin.toml").write_text(TOPIC)
    keyboard, terminal = pty.openpty()
    with open(keyboard, "wb"), open(terminal, "rb"):  # noqa: PTH123 - descriptors
        done = ran(tmp_path, python.with_name("logtwin"), *verb, stdin=terminal)
    assert done.returncode == ConfigurationError.exit_code, done.stderr
    assert f"pip install 'logtwin-….whl[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
@pytest.mark.spark
def test_the_registering_functions_register(spark: SparkSession, fixture_550: Fixture, tmp_path: Path) -> None:
    opened(spark, tmp_path, MemoryMaster((100,) * 20))(ranges(0, 1000))
    session = spark.newSession()
    logtwin.register(session, str(tmp_path))
    assert session.table("log").count() == 10
    logtwin.register_source(spark)
    store = str(fixture_550.commitlog_path)
    records = spark.read.format("logtwin").option("id", "rocketmq/b").option("path", store).load()
    assert records.count() == len(fixture_550.rows)

    past = spark.newSession()
    logtwin.register_as_of(past, str(tmp_path), str(BROKER_A), 300)
    assert past.table("log").count() == 3
    with pytest.raises(ValueError, match="no log id"):
        logtwin.register_as_of(past, str(tmp_path), "broker-a", 300)
