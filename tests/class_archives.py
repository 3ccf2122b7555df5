"""Archives of classes for the JVMs that tests start (class-data sharing): they are mapped, not read and verified again.

Half of what Spark's JVM does until its first answer is to load the same ten thousand classes. Java 17 makes no archive
by itself: a trial makes it, once a machine, into the cache folder. A JVM that an archive does not fit goes without it,
and says nothing; so does one for which none could be made.
"""

import fcntl
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import pyspark

from pipeline.config.jars import FROM_ENVIRONMENT
from pipeline.spark.jars import java, session_jars
from pipeline.spark.jvm import archive_file, home

log = logging.getLogger(__name__)

Trial: TypeAlias = Callable[[str], None]
"""Runs a JVM with the options that it is given, to an orderly end: one that is killed writes no archive."""

_SPARK: Final = Path(pyspark.__file__).parent
_PROJECT: Final = Path(__file__).parents[1]
_SILENT: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_TRIAL_WITHIN_S: Final = 300.0  # a minute of a processor; without an archive each process would try it again
# What loads most of the classes that any test needs: a session, and a table written and read.
_USE_SPARK: Final = """
from pipeline.spark.session import build_session
spark = build_session({"spark.sql.warehouse.dir": "warehouse"})
spark.range(100).write.format("delta").save("table")
assert spark.read.format("delta").load("table").count() == 100
spark.stop()
"""
_made: dict[str, str] = {}


def spark_options(first: Sequence[Path] = ()) -> str:
    """For JVMs whose class path begins with `first` and Spark's own: a driver that `pipeline.spark.session` starts has
    Delta's jars there; one that spark-submit gets them for has none, nor has an executor.
    """

    def trial(options: str) -> None:
        delta = ",".join(map(str, session_jars()))
        jars = ["--driver-class-path", ":".join(map(str, first))] if first else ["--jars", delta]
        with tempfile.TemporaryDirectory() as scratch:
            environment = {"PYTHONPATH": str(_PROJECT), "SPARK_SUBMIT_OPTS": options, "SPARK_LOCAL_IP": "127.0.0.1"}
            environment |= {
                "SPARK_HOME": str(home() if first else _SPARK),
                "SPARK_LOCAL_DIRS": scratch,
                "PYSPARK_PYTHON": sys.executable,
            }
            script = Path(scratch) / "use_spark.py"
            script.write_text(_USE_SPARK)
            subprocess.run(
                [str(_SPARK / "bin" / "spark-submit"), "--master", "local[2]", *jars, str(script)],
                env=os.environ | environment, cwd=scratch, check=True, capture_output=True, timeout=_TRIAL_WITHIN_S,
            )  # fmt: skip

    return class_archive("spark", [*first, *(_SPARK / "jars").iterdir()], trial)


def class_archive(name: str, jars: Sequence[Path], trial: Trial) -> str:
    """Options for a JVM whose class path begins with `jars`, in the order of the trial; none where none can be made."""
    if not os.environ.get("JAVA_TOOL_OPTIONS"):
        return ""  # `make soak` wants JVMs as users have them
    file = archive_file(FROM_ENVIRONMENT, java(), jars)
    key = file.name  # whatever cache folder a test has
    if key not in _made:
        try:
            _make(file, trial)
            _made[key] = f'-XX:SharedArchiveFile="{file}" -Xshare:auto {_SILENT}'
        except Exception as error:  # noqa: BLE001 - tests are slower without it, and no less right
            log.warning("no class archive %s: %s", name, error)
            _made[key] = ""
    return _made[key]


def class_path(command: Sequence[str]) -> list[Path]:
    """The jars of a Java command, in the order in which Java finds those of a folder."""
    folders = command[command.index("-cp") + 1].split(":")
    return [jar for folder in folders for jar in Path(folder.removesuffix("*")).iterdir()]


def _make(file: Path, trial: Trial) -> None:
    """One process makes it, the others wait; all of it or nothing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with (file.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            new = file.with_suffix(".new")
            trial(f'-XX:ArchiveClassesAtExit="{new}" {_SILENT}')
            new.rename(file)
