"""Java's libraries beyond Spark's own: for Delta, for object stores, for the demo's Kafka.

They are in the folder that the configuration names, as ``logtwin jars`` wrote it, and then nothing is downloaded.
Otherwise Ivy, which PySpark ships, downloads them once, into the cache folder. Spark could resolve them at every start
(``spark.jars.packages``), but that costs seconds and a page of output each time.

Such a folder is for hosts without a network, for images, for spark-submit's ``--jars``. Each set of jars has a folder
of its own in it, whose name has the version, with a list of their SHA-256 that ``sha256sum --check`` reads. It is
written whole or not at all. Whoever takes jars out of it takes exactly what its list says, or none.
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
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

import pyspark
from tenacity import RetryCallState, Retrying, stop_after_attempt, wait_exponential

from pipeline.config.jars import FOLDER, FROM_ENVIRONMENT, IVY_SETTINGS, JarsConfig
from pipeline.system.folders import cache_file, cache_folder
from pipeline.system.processes import ending_with_us
from sinks.storage.settings import AZURE, GOOGLE, S3
from sources.errors import ConfigurationError

log = logging.getLogger(__name__)

DELTA_ORGANISATION = "io.delta"
DELTA_MODULE = "delta-spark_4.2_2.13"
_HADOOP: Final = "org.apache.hadoop"
_AWS: Final = "software.amazon.awssdk"
_AWS_REVISION: Final = "2.35.4"  # the revision that Hadoop 3.5 is built with
LIST: Final = "SHA256SUMS"
"""The file of a set in a folder of jars, with a line ``<SHA-256>  <name>`` for each of them."""
_VERSION: Final = re.compile(r"-(?=\d)")
_ATTEMPTS, _FIRST_WAIT_S = 5, 2.0  # each wait is twice the one before: a repository that is away for half a minute


@dataclass(frozen=True, slots=True)
class Module:
    """A module of a Maven repository, with its dependencies."""

    organisation: str
    name: str
    revision: str

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.revision}"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Modules with all that they depend on, as the jars of one folder. Its name has their version.

    `beside_spark`: they are loaded beside Spark's own jars. What Spark has of them, in whatever version, is left out.
    """

    name: str
    modules: tuple[Module, ...]
    without: tuple[tuple[str, str], ...] = ()
    beside_spark: bool = True

    @classmethod
    def of(cls, organisation: str, module: str, revision: str, *, beside_spark: bool = True) -> JarSet:
        """A module, and all that it depends on."""
        return cls(f"{module}-{revision}", (Module(organisation, module, revision),), beside_spark=beside_spark)

    @property
    def cached(self) -> Path:
        """The folder that they are downloaded to."""
        return cache_folder() / "jars" / self.name

    @property
    def is_downloaded(self) -> bool:
        return self.cached.is_dir()

    def jars(self, given: JarsConfig) -> list[Path]:
        """The jars, downloaded only if `given` names no folder. Raises ConfigurationError."""
        chosen = given.chosen_folder
        return self.downloaded(given) if chosen is None else jars_of(chosen, self.name)

    def downloaded(self, given: JarsConfig) -> list[Path]:
        """The jars, downloaded unless they are in the cache folder. Raises ConfigurationError with Ivy's output."""
        shipped = {_artifact(jar) for jar in spark_jars()} if self.beside_spark else set()
        return sorted(jar for jar in _cached(self, given).glob("*.jar") if _artifact(jar) not in shipped)


def delta_set() -> JarSet:
    """Delta, of the version of delta-spark."""
    return JarSet.of(DELTA_ORGANISATION, DELTA_MODULE, version("delta-spark"))


def storage_sets(scheme: str | None) -> tuple[JarSet, ...]:
    """The jars that Hadoop needs for URIs with this scheme; none for HDFS and local disks, for which Spark has them."""
    hadoop = _revision_in_spark("hadoop-client-api")
    if scheme in S3:
        # Hadoop depends on the whole AWS client, 600 MB. S3A works with a thirtieth of it.
        parts = ("s3-transfer-manager", "sts", "apache-client")
        modules = (Module(_HADOOP, "hadoop-aws", hadoop), *(Module(_AWS, part, _AWS_REVISION) for part in parts))
        return (JarSet(f"hadoop-aws-{hadoop}-s3a", modules, without=((_AWS, "bundle"),)),)
    if scheme in AZURE:
        return (JarSet.of(_HADOOP, "hadoop-azure", hadoop),)
    if scheme in GOOGLE:
        return (JarSet.of(_HADOOP, "hadoop-gcp", hadoop),)
    return ()


def session_jars(scheme: str | None = None, given: JarsConfig = FROM_ENVIRONMENT) -> list[Path]:
    """The jars that a session needs beyond Spark's own for tables at such URIs. Raises ConfigurationError."""
    return [jar for one in (delta_set(), *storage_sets(scheme)) for jar in one.jars(given)]


def resolve(organisation: str, module: str, revision: str) -> Path:
    """A folder with the jars of a module and its dependencies, downloaded unless it exists.

    Raises ConfigurationError with Ivy's output.
    """
    return _cached(JarSet.of(organisation, module, revision), FROM_ENVIRONMENT)


def _cached(wanted: JarSet, given: JarsConfig) -> Path:
    """Only one process downloads at a time, because Ivy does not lock its cache."""
    folder = wanted.cached
    if wanted.is_downloaded:
        return folder
    with cache_file("jars", ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed
        if not wanted.is_downloaded:
            log.info("resolving %s (once) …", wanted.name)
            _download(wanted, given.chosen_ivy_settings, folder)
    return folder


def _download(wanted: JarSet, settings: Path | None, folder: Path) -> None:
    """Download all or nothing: a kill leaves a hidden folder, and none that looks complete.

    A failed download is tried again: one of dozens of files from the network may fail. Ivy asks whom `settings` name
    and nobody else, or without them Maven Central.
    """
    if settings is not None and not settings.is_file():
        raise ConfigurationError(
            f"cannot read Ivy's settings {settings}", expected="a file", hint=f"[jars] or {IVY_SETTINGS} names it."
        )
    ivy = [java(), "-cp", f"{_spark_folder()}/*", "org.apache.ivy.Main"]
    ivy += ["-settings", str(settings)] if settings is not None else []
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    module_file = work / "ivy.xml"
    module_file.write_text(_ivy_file(wanted.modules, wanted.without))
    ivy += ["-ivy", str(module_file), "-confs", "default", "-types", "jar", "bundle"]
    try:
        stop, wait = stop_after_attempt(_ATTEMPTS), wait_exponential(multiplier=_FIRST_WAIT_S)
        for attempt in Retrying(stop=stop, wait=wait, before_sleep=_say_again, reraise=True):
            with attempt:
                _retrieve(ivy, work, " and ".join(map(str, wanted.modules)), settings)
        module_file.unlink()
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
            "there is no Java", expected="Java 17 or 21", found=found, hint="Install a JDK 17 or set JAVA_HOME."
        )
    return found


def _retrieve(ivy: Sequence[str], into: Path, name: str, settings: Path | None) -> None:
    command = [*ivy, "-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"]
    command = ending_with_us(command)  # the lock is free then
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    if done.returncode != 0 or not any(into.glob("*.jar")):
        asked = "Maven Central" if settings is None else f"What {settings} names"
        raise ConfigurationError(
            f"cannot resolve {name}",
            found=(done.stdout + done.stderr).strip()[-1500:],
            hint=f"{asked} must be reachable. Or let [jars] ivy_settings name a mirror, or [jars] folder what logtwin "
            "jars has written where there is a network.",
        )


def spark_jars() -> list[Path]:
    """Spark's own jars, in the order in which Java finds them."""
    return list(_spark_folder().glob("*.jar"))


def _spark_folder() -> Path:
    return Path(pyspark.__file__).parent / "jars"


def _revision_in_spark(artifact: str) -> str:
    return next(jar.stem.rsplit("-", 1)[1] for jar in _spark_folder().glob(f"{artifact}-*.jar"))


def _artifact(jar: Path) -> str:
    """``delta-storage-4.4.0.jar`` -> ``delta-storage``: the name without its version, which begins with a digit."""
    return _VERSION.split(jar.stem, maxsplit=1)[0]


def jars_of(folder: Path, name: str) -> list[Path]:
    """The jars of the set `name`. Raises ConfigurationError if one of them is missing, changed, or not in the list."""
    ours = folder / name
    listed = _listed(ours)
    jars = sorted(ours.glob("*.jar"))
    found = {jar.name: _sha256(jar) for jar in jars}
    for jar in sorted(listed.keys() | found.keys()):
        if listed.get(jar) != found.get(jar):
            expected, actual = (of.get(jar, "no such file") for of in (listed, found))
            raise _unfit(ours, f"{jar} is not as {LIST} says", expected=expected, found=actual)
    return jars


def write_jars(folder: Path, name: str, jars: Sequence[Path]) -> bool:
    """Write the set `name` with copies of `jars`; False if it is there already. What is not sound is replaced.

    Raises ConfigurationError if it cannot be written.
    """
    try:
        if [jar.name for jar in jars_of(folder, name)] == [jar.name for jar in jars]:
            return False
    except ConfigurationError:
        pass  # not there, or not sound
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=folder) as work:
            new = Path(work) / name  # with the rights that the process gives to all that it makes
            new.mkdir()
            for jar in jars:
                shutil.copyfile(jar, new / jar.name)
            (new / LIST).write_text("".join(f"{_sha256(new / jar.name)}  {jar.name}\n" for jar in jars))
            shutil.rmtree(folder / name, ignore_errors=True)
            new.rename(folder / name)
    except OSError as error:
        raise ConfigurationError(f"the jars cannot be written to {folder}", found=error.strerror) from error
    return True


def _sha256(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        return str(error.strerror)


def _listed(ours: Path) -> dict[str, str]:
    """The checksum of each jar of a set by its name."""
    try:
        lines = (ours / LIST).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    if not lines:
        others = sorted(path.parent.name for path in ours.parent.glob(f"*/{LIST}"))
        found = ", ".join(others) or ("an empty folder" if ours.parent.is_dir() else "no such folder")
        raise _unfit(ours.parent, f"no {ours.name} with a {LIST}", expected=ours.name, found=found)
    return {jar: digest for digest, _, jar in (line.partition("  ") for line in lines)}


def _unfit(where: Path, problem: str, *, expected: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"the jars in {where} are not those of this logtwin: {problem}",
        expected=expected,
        found=found,
        hint=f"logtwin jars --to writes them anew, where there is a network; {FOLDER} or [jars] names the folder.",
    )
