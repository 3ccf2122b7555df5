"""Resolves Java libraries once, with the Ivy that PySpark ships, and keeps them in a cache folder, with an archive of
their classes.

Spark could resolve them at every start (``spark.jars.packages``), but that costs seconds and a page of output each
time.

Loading the same twenty thousand classes is a third of what Spark's JVM does until its first answer. With an archive
(class-data sharing) they are mapped, not read and verified again. Java 17 makes none by itself. So the JVM of a query
writes one when it ends, if it found none: 180 MB in the cache folder. Nobody waits for that, because its Python process
has already ended. A job uses an existing archive but writes none, which would slow it down. A JVM that an archive does
not fit, for example because of another heap, silently ignores it.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

import pyspark
from tenacity import RetryCallState, Retrying, stop_after_attempt, wait_exponential

from pipeline.system.folders import cache_folder
from sinks.storage.settings import AZURE, GOOGLE, S3
from sources.errors import ConfigurationError

log = logging.getLogger(__name__)

DELTA_ORGANISATION = "io.delta"
DELTA_MODULE = "delta-spark_4.2_2.13"
_HADOOP: Final = "org.apache.hadoop"
_AWS: Final = "software.amazon.awssdk"
_AWS_REVISION: Final = "2.35.4"  # the revision that Hadoop 3.5 is built with
_VERSION: Final = re.compile(r"-(?=\d)")
_ATTEMPTS, _FIRST_WAIT_S = 5, 2.0  # each wait is twice the one before: a repository that is away for half a minute

_SILENT: Final = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_OTHERS: Final = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_WRITTEN_WITHIN_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Module:
    """A module of a Maven repository, with its dependencies."""

    organisation: str
    name: str
    revision: str

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.revision}"


def delta_jars() -> list[Path]:
    """Delta's jars and what they need beyond Spark's own. Raises ConfigurationError."""
    return _beyond_spark(resolve(DELTA_ORGANISATION, DELTA_MODULE, version("delta-spark")))


def storage_jars(scheme: str | None) -> list[Path]:
    """The jars that Hadoop needs for places with this scheme; for HDFS and local disks Spark has them.

    Raises ConfigurationError.
    """
    hadoop = _revision_in_spark("hadoop-client-api")
    if scheme in S3:
        # Hadoop depends on the whole AWS client, 600 MB. S3A works with a thirtieth of it.
        parts = ("s3-transfer-manager", "sts", "apache-client")
        modules = [Module(_HADOOP, "hadoop-aws", hadoop), *(Module(_AWS, part, _AWS_REVISION) for part in parts)]
        return _beyond_spark(_resolved(f"hadoop-aws-{hadoop}-s3a", modules, without=((_AWS, "bundle"),)))
    if scheme in AZURE:
        return _beyond_spark(resolve(_HADOOP, "hadoop-azure", hadoop))
    if scheme in GOOGLE:
        return _beyond_spark(resolve(_HADOOP, "hadoop-gcp", hadoop))
    return []


def resolve(organisation: str, module: str, revision: str) -> Path:
    """A folder with the jars of a module and its dependencies, downloaded unless it exists.

    Raises ConfigurationError with Ivy's output.
    """
    return _resolved(f"{module}-{revision}", [Module(organisation, module, revision)])


def _resolved(name: str, modules: Sequence[Module], without: Collection[tuple[str, str]] = ()) -> Path:
    """The folder `name` with the jars of `modules`, downloaded unless it exists.

    Only one process downloads at a time, because Ivy does not lock its cache. A failed download is tried again: one of
    dozens of files from the network may fail.
    """
    folder = cache_folder() / "jars" / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed
        if not folder.is_dir():
            log.info("resolving %s (once) …", name)
            _download(modules, without, folder)
    return folder


def _download(modules: Sequence[Module], without: Collection[tuple[str, str]], folder: Path) -> None:
    """Download all or nothing: a kill leaves a hidden folder, and none that looks complete."""
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    wanted = work / "ivy.xml"
    wanted.write_text(_ivy_file(modules, without))
    ivy = [java(), "-cp", f"{_spark_folder()}/*", "org.apache.ivy.Main"]
    ivy += ["-ivy", str(wanted), "-confs", "default", "-types", "jar", "bundle"]
    try:
        stop, wait = stop_after_attempt(_ATTEMPTS), wait_exponential(multiplier=_FIRST_WAIT_S)
        for attempt in Retrying(stop=stop, wait=wait, before_sleep=_say_again, reraise=True):
            with attempt:
                _retrieve(ivy, work, " and ".join(map(str, modules)))
        wanted.unlink()
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _ivy_file(modules: Sequence[Module], without: Collection[tuple[str, str]]) -> str:
    wanted = [
        f"<dependency org={quoteattr(one.organisation)} name={quoteattr(one.name)} rev={quoteattr(one.revision)} "
        'conf="default->default"/>'
        for one in modules
    ]
    unwanted = [f"<exclude org={quoteattr(organisation)} module={quoteattr(name)}/>" for organisation, name in without]
    return (
        '<ivy-module version="2.0"><info organisation="logtwin" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join([*wanted, *unwanted])}</dependencies></ivy-module>"
    )


def _say_again(state: RetryCallState) -> None:
    log.warning("some files could not be downloaded; trying again in %.0f s", state.upcoming_sleep)


def java() -> str:
    """The java command of JAVA_HOME, or else of the PATH. Raises ConfigurationError if there is none."""
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


def spark_jars() -> list[Path]:
    """Spark's own jars, in the order in which Java finds them."""
    return list(_spark_folder().glob("*.jar"))


def _spark_folder() -> Path:
    return Path(pyspark.__file__).parent / "jars"


def _beyond_spark(folder: Path) -> list[Path]:
    shipped = {_artifact(jar) for jar in spark_jars()}
    return sorted(jar for jar in folder.glob("*.jar") if _artifact(jar) not in shipped)


def _revision_in_spark(artifact: str) -> str:
    return next(jar.stem.rsplit("-", 1)[1] for jar in _spark_folder().glob(f"{artifact}-*.jar"))


def _artifact(jar: Path) -> str:
    """``delta-storage-4.4.0.jar`` -> ``delta-storage``: the name without its version, which begins with a digit."""
    return _VERSION.split(jar.stem, maxsplit=1)[0]


def archive_options(java: str, jars: Sequence[Path], *, made: bool) -> str:
    """JVM options for that Java and a class path of these jars, in this order; empty if the user has set an archive.

    `made`: a JVM that finds no archive writes one.
    """
    if any("SharedArchiveFile" in os.environ.get(name, "") for name in _OTHERS):
        return ""
    # an archive fits one Java, and jars that have not changed since
    fits = [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in (Path(java).resolve(), *jars)]
    key = hashlib.sha256("|".join(fits).encode()).hexdigest()[:16]
    folder = cache_folder() / "classes"
    file = folder / f"{key}.jsa"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _take_in(folder, key, file)
    except OSError:
        return ""  # the cache cannot be written
    if file.exists():
        return f'-XX:SharedArchiveFile="{file}" {_SILENT}'
    return f'-XX:ArchiveClassesAtExit="{folder}/{key}.{os.getpid()}.new" {_SILENT}' if made else ""


def _take_in(folder: Path, key: str, file: Path) -> None:
    """Make a complete archive `file`: several JVMs may write one each. Java writes the first bytes of one last."""
    for new in folder.glob(f"{key}.*.new"):
        with new.open("rb") as found:
            is_whole = any(found.read(4))
        if is_whole and not file.exists():
            new.rename(file)
        elif is_whole or time.time() - new.stat().st_mtime > _WRITTEN_WITHIN_S:
            new.unlink(missing_ok=True)
