"""RocketMQ's jars, fetched once through the Ivy that PySpark ships: no Maven needed.

They are kept under ``.cache/rocketmq/<version>/lib`` of the project, outside version control. ``python -m
tests.peers.jars 4.9.7 5.5.0`` fetches ahead of the tests; it takes a minute or two per version.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

VERSIONS = ("4.9.7", "5.5.0")
CACHE = Path(__file__).parents[2] / ".cache" / "rocketmq"
_FETCH_TIMEOUT_S = 900
_IVY_MODULE = """\
<ivy-module version="2.0">
  <info organisation="logtwin" module="broker-jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.rocketmq" name="rocketmq-broker" rev="{version}" conf="default->default"/>
    <dependency org="org.apache.rocketmq" name="rocketmq-namesrv" rev="{version}" conf="default->default"/>
  </dependencies>
</ivy-module>
"""


class JarsMissing(Exception):
    """The jars of a RocketMQ version could not be fetched."""


def broker_jars(version: str) -> Path:
    """The folder with all jars of a broker and a name server of `version`; fetched if it is not there.

    The folder appears whole or not at all, also when several test runs ask at once. Raises JarsMissing.
    """
    lib = CACHE / version / "lib"
    with _locked():
        if not lib.is_dir():
            lib.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=lib.parent) as scratch:
                _retrieve(version, Path(scratch))
                (Path(scratch) / "lib").rename(lib)
    return lib


@contextmanager
def _locked() -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _retrieve(version: str, scratch: Path) -> None:
    """Runs Ivy's own main class: it resolves the module with its dependencies and copies the jars."""
    module = scratch / "ivy.xml"
    module.write_text(_IVY_MODULE.format(version=version))
    ivy = ["-ivy", str(module), "-cache", str(CACHE / "ivy"), "-confs", "default", "-types", "jar", "bundle"]
    pattern = str(scratch / "lib" / "[artifact]-[revision](-[classifier]).[ext]")
    main = ("-cp", f"{Path(pyspark.__file__).parent}/jars/*", "org.apache.ivy.Main")
    command = [java(), *main, *ivy, "-retrieve", pattern]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False)
    if done.returncode or not (scratch / "lib" / f"rocketmq-broker-{version}.jar").exists():
        said = (done.stdout + done.stderr).splitlines()
        raise JarsMissing(
            f"the jars of RocketMQ {version} could not be fetched through Ivy (exit code {done.returncode}). "
            "Tests with real brokers need a Maven repository that Ivy can reach, once. Ivy's last lines:\n"
            + "\n".join(said[-25:])
        )


def java() -> str:
    """The java command. Raises JarsMissing where there is none on the PATH."""
    found = shutil.which("java")
    if found is None:
        raise JarsMissing("no java on the PATH: Spark and the real brokers need Java 17")
    return found


if __name__ == "__main__":
    for wanted in sys.argv[1:] or VERSIONS:
        broker_jars(wanted)
