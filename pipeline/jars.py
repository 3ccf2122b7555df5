"""Java libraries, resolved once by the Ivy that PySpark ships, kept in a cache folder.

Spark could do it at every start (``spark.jars.packages``), at the price of seconds and a page of output each time.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

import pyspark

from sources.errors import ConfigurationError

log = logging.getLogger(__name__)

DELTA_ORGANISATION = "io.delta"
DELTA_MODULE = "delta-spark_4.2_2.13"


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

    Two processes may ask at once: each works in a folder of its own, and the first rename wins.
    Raises ConfigurationError with what Ivy said.
    """
    folder = cache_folder() / "jars" / f"{module}-{revision}"
    if folder.is_dir():
        return folder
    log.info("resolving %s %s (once) …", module, revision)
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{module}-", dir=folder.parent))
    try:
        _retrieve(organisation, module, revision, work)
        try:
            work.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def java() -> str:
    """The java command: of JAVA_HOME, else of the PATH. Raises ConfigurationError."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not found or not Path(found).exists():
        raise ConfigurationError(
            "there is no Java", expected="Java 17", found=found, hint="Install a JDK 17 or set JAVA_HOME."
        )
    return found


def _retrieve(organisation: str, module: str, revision: str, into: Path) -> None:
    pattern = f"{into}/[artifact]-[revision](-[classifier]).[ext]"
    command = [java(), "-cp", f"{_spark_jars()}/*", "org.apache.ivy.Main"]
    command += ["-dependency", organisation, module, revision, "-confs", "default", "-types", "jar", "bundle"]
    command += ["-retrieve", pattern]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    if done.returncode != 0 or not any(into.glob("*.jar")):
        raise ConfigurationError(
            f"cannot resolve {organisation}:{module}:{revision}",
            found=(done.stdout + done.stderr).strip()[-1500:],
            hint="Maven Central must be reachable, or named in Ivy's settings.",
        )


def _spark_jars() -> Path:
    return Path(pyspark.__file__).parent / "jars"


def _artifact(jar: Path) -> str:
    """``delta-storage-4.4.0.jar`` -> ``delta-storage``: the name without its version."""
    return jar.stem.rsplit("-", 1)[0]
