"""Java libraries, resolved once by the Ivy that PySpark ships, kept in a cache folder.

Spark could do it at every start (``spark.jars.packages``), at the price of seconds and a page of output each time.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pyspark
from tenacity import RetryCallState, Retrying, stop_after_attempt, wait_exponential

from sources.errors import ConfigurationError

log = logging.getLogger(__name__)

DELTA_ORGANISATION = "io.delta"
DELTA_MODULE = "delta-spark_4.2_2.13"
_ATTEMPTS, _FIRST_WAIT_S = 5, 2.0  # each wait is twice the one before: a repository that is away for half a minute


def cache_folder() -> Path:
    """``$LOGTWIN_CACHE``, or the user's cache folder."""
    chosen = os.environ.get("LOGTWIN_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "logtwin"


def delta_jars() -> list[Path]:
    """Delta's jars and what they need beyond Spark's own. Raises ConfigurationError."""
    shipped = {_artifact(jar) for jar in _spark_jars().glob("*.jar")}
    jars = resolve(DELTA_ORGANISATION, DELTA_MODULE, version("delta-spark"))
    return sorted(jar for jar in jars.glob("*.jar") if _artifact(jar) not in shipped)


def resolve(organisation: str, module: str, revision: str) -> Path:
    """A folder with the jars of a module and all it depends on, downloaded unless it is there.

    One process at a time: Ivy does not guard its own cache against a second one. What fails is tried again, because of
    dozens of files from the network one may get lost. Raises ConfigurationError with what Ivy said.
    """
    folder = cache_folder() / "jars" / f"{module}-{revision}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back when the file is closed
        if not folder.is_dir():
            log.info("resolving %s %s (once) …", module, revision)
            _download(organisation, module, revision, folder)
    return folder


def _download(organisation: str, module: str, revision: str, folder: Path) -> None:
    """All of it or nothing: a kill leaves a hidden folder, and none that looks complete."""
    ivy = [java(), "-cp", f"{_spark_jars()}/*", "org.apache.ivy.Main"]
    ivy += ["-dependency", organisation, module, revision, "-confs", "default", "-types", "jar", "bundle"]
    work = Path(tempfile.mkdtemp(prefix=f".{module}-", dir=folder.parent))
    try:
        stop, wait = stop_after_attempt(_ATTEMPTS), wait_exponential(multiplier=_FIRST_WAIT_S)
        for attempt in Retrying(stop=stop, wait=wait, before_sleep=_say_again, reraise=True):
            with attempt:
                _retrieve(ivy, work, f"{organisation}:{module}:{revision}")
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _say_again(state: RetryCallState) -> None:
    log.warning("not all files came; trying again in %.0f s", state.upcoming_sleep)


def java() -> str:
    """The java command: of JAVA_HOME, else of the PATH. Raises ConfigurationError."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not found or not Path(found).exists():
        raise ConfigurationError(
            "there is no Java", expected="Java 17", found=found, hint="Install a JDK 17 or set JAVA_HOME."
        )
    return found


def _retrieve(ivy: Sequence[str], into: Path, name: str) -> None:
    command = [*ivy, "-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    if done.returncode != 0 or not any(into.glob("*.jar")):
        raise ConfigurationError(
            f"cannot resolve {name}",
            found=(done.stdout + done.stderr).strip()[-1500:],
            hint="Maven Central must be reachable, or named in Ivy's settings.",
        )


def _spark_jars() -> Path:
    return Path(pyspark.__file__).parent / "jars"


def _artifact(jar: Path) -> str:
    """``delta-storage-4.4.0.jar`` -> ``delta-storage``: the name without its version."""
    return jar.stem.rsplit("-", 1)[0]
