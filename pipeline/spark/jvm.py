"""How the JVM of a local session is started: from what home, with what archive of classes, as whose process.

**The home.** Spark puts ``$SPARK_HOME/python/lib/pyspark.zip`` first on the path of every Python process that it
starts: a daemon for each kind of worker, and a process for each stream. Python keeps no compiled modules of an archive,
so each of these processes compiles a hundred modules anew, 1 s of a processor. pip installs the same modules as files,
too. The home made here is the installed one by symbolic links, with those files where Spark looks for its archives.

**The archive** of the classes that the JVM loads (class-data sharing), so that a session answers sooner. Loading the
same twenty thousand classes is two fifths of what that JVM does until its first answer. Out of an archive they are
mapped, not read and verified again. To write one, 180 MB, takes a JVM half a minute of a processor and 1.6 GB of
memory: ``logtwin warm`` does it, and nothing else. A JVM that an archive does not fit, for example because of another
heap, silently goes without it.

**The process** never outlives this one, and no signal reaches it that is not meant for it. PySpark starts it in our own
process group: a signal to a terminal or a group ends it before us, in the middle of a batch. And if we end before the
two have met, it stays for ever: it cannot write the file by which they meet, because PySpark removes its folder, and
then does not notice that its input has ended. So we start it (`kept_process`), and PySpark meets it as it meets that of
spark-submit.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

import pyspark
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from pipeline.config.jars import JarsConfig
from pipeline.system.console import spark_ended
from pipeline.system.folders import cache_folder, process_folder
from pipeline.system.processes import kept_process

_INSTALLED = Path(pyspark.__file__).parent
_ARCHIVES = Path("python", "lib")
_LOOK_EVERY_S: Final = 0.05
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_SILENT: Final = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_OTHERS: Final = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


@contextmanager
def compiled_home() -> Iterator[None]:
    """Start a local JVM with this home, unless the user has chosen one or there is no place for it.

    What starts executors on other machines hands them the archives of its home, and needs them as they are.
    """
    if "SPARK_HOME" in os.environ:
        yield
        return
    with suppress(OSError):  # a cache that cannot be written, or links that cannot be made
        os.environ["SPARK_HOME"] = str(home())
    try:
        yield
    finally:
        os.environ.pop("SPARK_HOME", None)


def home() -> Path:
    """The folder of that home, made if it is not there. Raises OSError."""
    key = hashlib.sha256(f"{_INSTALLED} {pyspark.__version__}".encode()).hexdigest()[:16]
    folder = cache_folder() / "spark-home" / key
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=folder.parent))
        try:
            _link(new)
            new.rename(folder)
        except OSError:
            shutil.rmtree(new)
            if not folder.exists():  # or another process was first, and made the same
                raise
    return folder


def _link(new: Path) -> None:
    for entry in _INSTALLED.iterdir():
        if entry.name != _ARCHIVES.parts[0]:
            (new / entry.name).symlink_to(entry)
    for archive in (_INSTALLED / _ARCHIVES).glob("*.zip"):
        package = archive.name.partition("-")[0].removesuffix(".zip")
        place = new / _ARCHIVES / archive.name
        place.mkdir(parents=True)
        (place / package).symlink_to(_folder_of(package))


def _folder_of(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise FileNotFoundError(package)
    return Path(found.origin).parent


def started_gateway(settings: Mapping[str, str], output: IO[str] | None) -> Any:
    """The gateway to a new JVM with these properties, which writes to `output`, or where we do.

    Raises ReplicaError if it ends instead.
    """
    given = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    rest = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    command = [str(Path(_find_spark_home()) / "bin" / "spark-submit"), *given, *rest]
    with tempfile.TemporaryDirectory(dir=process_folder()) as folder:
        file = Path(folder) / "gateway"
        environment = {**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(file)}
        java = kept_process(command, env=environment, stdin=subprocess.PIPE, stdout=output, stderr=output)
        while not file.exists():
            with suppress(subprocess.TimeoutExpired):
                raise spark_ended(java.wait(_LOOK_EVERY_S))
        with file.open("rb") as said:
            port, secret = read_int(said), UTF8Deserializer().loads(said)  # type: ignore[no-untyped-call]
    os.environ |= {_PORT: str(port), _SECRET: secret}
    try:
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        del os.environ[_PORT], os.environ[_SECRET]
    gateway.proc = java
    return gateway


def archive_file(given: JarsConfig, java: str, jars: Sequence[Path]) -> Path:
    """The archive for this Java and a class path of these jars, in this order; it need not exist.

    It lies beside the jars if they have a folder of their own, otherwise in the cache folder.
    """
    # It fits one Java, and jars that have not changed since. An image keeps of their times no more than the seconds.
    states = [(path, path.stat()) for path in (Path(java).resolve(), *jars)]
    fits = "|".join(f"{path} {state.st_size} {int(state.st_mtime)}" for path, state in states)
    folder = given.chosen_folder or cache_folder()
    return folder / "classes" / f"{hashlib.sha256(fits.encode()).hexdigest()[:16]}.jsa"


def archive_options(archive: Path, to: Path | None) -> str:
    """Options for a JVM that uses the archive, if it exists, or that writes one to `to` when it ends.

    None of them if the user has set an archive.
    """
    if any("SharedArchiveFile" in os.environ.get(name, "") for name in _OTHERS):
        return ""
    if to is not None:
        return f'-XX:ArchiveClassesAtExit="{to}" {_SILENT}'
    return f'-XX:SharedArchiveFile="{archive}" {_SILENT}' if archive.exists() else ""
