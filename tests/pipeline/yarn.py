"""A YARN cluster on the loopback, of Hadoop's own ResourceManager and NodeManagers, and jobs that run in it alone.

The Python of its containers is shipped: an environment that venv-pack has packed, with logtwin in it. Shared are the
warehouse, the masters, and what each host of a cluster has: Java, Spark's jars, the Python that environments are of.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from itertools import chain
from pathlib import Path
from xml.sax.saxutils import escape

import psutil
import pytest
import venv_pack

from pipeline.spark.jars import java, resolve, session_jars
from pipeline.system.processes import free_port
from sources.errors import ConfigurationError
from tests.patience import wait_until
from tests.pipeline.standalone import DRIVER, PROJECT, SPARK, Submission, Worker, daemon, submission

SERVER = "org.apache.hadoop.yarn.server"
JAVA_HOME = str(Path(java()).resolve().parents[1])
DRIVERS = "deploy.yarn.ApplicationMaster"
NODE_MB = 2048  # a driver and an executor, or two executors


def packed_environment(folder: Path, wheel: Path) -> Path:
    """An archive of a Python with logtwin and what it needs, as pip and venv-pack make it; without the network."""
    made = folder / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    packages = next(made.glob("lib/python*/site-packages"))
    shutil.unpack_archive(wheel, packages, "zip")
    for one in _needed_by("logtwin", {}).values():
        for file in one.files or ():
            installed = Path(str(file.locate()))
            if not {"..", "tests"} & set(file.parts) and installed.is_file():
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(installed, packages / file)
    archive = folder / "env.tar.gz"
    venv_pack.pack(prefix=str(made), output=str(archive), compress_level=1)
    shutil.rmtree(made)
    return archive


def _needed_by(name: str, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """`found`, with what `name` depends on as it is installed here; without pyspark, which Spark itself ships."""
    for line in distribution(name).requires or ():
        needed = re.split(r"[^\w.-]", line, maxsplit=1)[0]
        if "extra ==" not in line and needed not in {*found, "pyspark"}:
            with suppress(PackageNotFoundError):  # for another Python or system
                found[needed] = distribution(needed)
                _needed_by(needed, found)
    return found


class Yarn:
    """A ResourceManager, and NodeManagers with room for NODE_MB each; they end with `running`."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self.folder = folder
        self.conf = folder / "conf"
        self.nodes: list[Worker] = []
        self._running = running
        self.conf.mkdir(parents=True)
        ports = ("", "scheduler.", "resource-tracker.", "admin.")
        _write(self.conf / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(folder / "tmp")})
        _write(
            self.conf / "yarn-site.xml",
            {
                **{f"yarn.resourcemanager.{port}address": f"{DRIVER}:{free_port()}" for port in ports},
                "yarn.resourcemanager.webapp.address": f"{DRIVER}:0",
                "yarn.resourcemanager.scheduler.class": f"{SERVER}.resourcemanager.scheduler.fifo.FifoScheduler",
                "yarn.resourcemanager.am.max-attempts": "4",
                "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
                "yarn.nm.liveness-monitor.expiry-interval-ms": "5000",  # a lost node is noticed then
                "yarn.scheduler.minimum-allocation-mb": "128",
                "yarn.nodemanager.resource.memory-mb": str(NODE_MB),
                "yarn.nodemanager.user-home-dir": "/proc",  # by default /home, which a job cannot write either
                "yarn.nodemanager.vmem-check-enabled": "false",  # Java reserves more than it uses
                "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            },
        )
        self._start("resourcemanager", "resourcemanager.ResourceManager")

    def start_node(self) -> Worker:
        """One more, at an address and with folders of its own; it will register by and by."""
        name = f"node-{len(self.nodes) + 1}"
        host = f"127.0.0.{len(self.nodes) + 2}"
        own = {f"{port}address": f"{host}:0" for port in ("", "localizer.", "webapp.")}
        own |= {f"{kind}-dirs": str(self.folder / name / kind) for kind in ("local", "log")}
        self.nodes.append(
            self._start(
                name, "nodemanager.NodeManager", *(f"-Dyarn.nodemanager.{key}={value}" for key, value in own.items())
            )
        )
        return self.nodes[-1]

    def driver_node(self) -> Worker:
        """The node where the driver runs, once it does."""
        found: list[Worker] = []

        def is_found() -> bool:  # by one look: processes come and go between two
            found[:] = [node for node in self.nodes if node.jvms(DRIVERS)]
            return bool(found)

        wait_until(is_found, "a driver", 400)
        return found[0]

    def kill_driver(self) -> list[psutil.Process]:
        """Its JVM. Returns its Python processes, which find out by themselves."""
        (driver,) = self.driver_node().jvms(DRIVERS)
        python: list[psutil.Process] = driver.children(recursive=True)
        driver.kill()
        return python

    def said(self, file: str) -> str:
        """What all containers have said in their files of this name."""
        return "\n".join(one.read_text() for one in sorted(self.folder.glob(f"node-*/log/*/*/{file}")))

    def _start(self, name: str, program: str, *arguments: str) -> Worker:
        own = self.folder / name
        own.mkdir()
        options = ["-Xmx256m", "-Dorg.apache.logging.log4j.level=INFO"]
        command = ["java", *options, "-cp", _class_path(self.conf), f"{SERVER}.{program}", *arguments]
        return Worker(*self._running.enter_context(daemon(own, command, {"JAVA_HOME": JAVA_HOME})))


def _class_path(conf: Path) -> str:
    """Hadoop's servers, of the version of Spark's Hadoop client, with Spark's loggers."""
    of_spark = {name: list((SPARK / "jars").glob(f"{name}*.jar")) for name in ("hadoop-client", "log4j", "slf4j")}
    version = of_spark["hadoop-client"][0].stem.rpartition("-")[2]
    try:
        servers = resolve("org.apache.hadoop", "hadoop-client-minicluster", version)
        certificates = resolve("org.bouncycastle", "bcpkix-jdk18on", "1.82")  # the ResourceManager does not name it
    except ConfigurationError as error:
        pytest.skip(f"no servers of YARN: {error}")
    return ":".join(map(str, [conf, *chain(*of_spark.values()), servers / "*", certificates / "*"]))


def _write(file: Path, properties: Mapping[str, str]) -> None:
    lines = (
        f"<property><name>{key}</name><value>{escape(value)}</value></property>" for key, value in properties.items()
    )
    file.write_text(f"<configuration>{''.join(lines)}</configuration>")


@contextmanager
def yarn(folder: Path) -> Iterator[Yarn]:
    """A cluster of two nodes in `folder` while the `with` lasts."""
    with ExitStack() as running:
        one = Yarn(folder, running)
        for node in [one.start_node(), one.start_node()]:
            node.said("Registered with ResourceManager")
        yield one


@contextmanager
def submitted(to: Yarn, folder: Path) -> Iterator[Submission]:
    """What docs/deploying.md submits, out of `folder`, until all is read; with little memory, and without a network."""
    page = (PROJECT / "docs" / "deploying.md").read_text()
    (line,) = re.findall(r"^\$ env/bin/(spark-submit --master yarn(?:.*\\\n)*.*)", page, re.MULTILINE)
    words = shlex.split(line.replace("\\\n", ""))
    packages = words.index("--packages")
    words[packages : packages + 2] = ["--jars", ",".join(map(str, session_jars()))]
    properties = {
        "spark.yarn.jars": f"local:{SPARK}/jars/*",
        "spark.yarn.stagingDir": str(folder),
        "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": DRIVER,
        "spark.executor.instances": "2",
        **{f"spark.{who}.{what}": "512m" for who in ("driver", "executor") for what in ("memory", "memoryOverhead")},
        **{f"spark.{who}.extraJavaOptions": os.environ.get("JAVA_TOOL_OPTIONS", "") for who in ("driver", "executor")},
    }
    given = [word for pair in properties.items() for word in ("--conf", "=".join(pair))]
    (folder / "pipeline").symlink_to(PROJECT / "pipeline")
    command = [str(SPARK / "bin" / "spark-submit"), *given, *words[1:], "--available-now"]
    with submission(folder, command, {"HADOOP_CONF_DIR": str(to.conf)}) as job:
        yield job
