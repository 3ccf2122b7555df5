"""A standalone cluster of Spark's on the loopback, and jobs that spark-submit sends there with the code as a wheel.

Its workers share nothing: each has an address, a work directory and local directories of its own. Their Python has what
logtwin depends on, but not logtwin: that comes as the wheel. Warehouse and masters are the test's.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from pipeline.spark.jars import delta_set, session_jars, write_jars
from pipeline.spark.session import NEEDED
from pipeline.system.processes import ending_with_us
from tests.class_archives import spark_options
from tests.patience import wait_until

PROJECT = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent
DRIVER = "127.0.0.1"
EXECUTOR = "CoarseGrainedExecutorBackend"
Started = tuple[subprocess.Popen[bytes], Path]


WHEEL_PARTS = (
    "pyproject.toml", "LICENSE", "NOTICE", "*.md", "logtwin", "pipeline", "sources", "sinks", "docs", "conf",
    "airflow_dags",
)  # fmt: skip
"""Of the project: what the wheel is made of."""


def build_wheel(folder: Path) -> Path:
    source = folder / "source"
    source.mkdir(parents=True)
    for part in (one for pattern in WHEEL_PARTS for one in PROJECT.glob(pattern)):
        copy = shutil.copytree if part.is_dir() else shutil.copy
        copy(part, source / part.name)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)],
        check=True,
    )
    return next(folder.glob("*.whl"))


def bare_python(folder: Path) -> Path:
    """A Python with everything that this one has installed, except what is installed in place: this project."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    # Folders that a .pth file names are searched for modules, but not for further .pth files.
    (packages / "dependencies.pth").write_text(f"{SPARK.parent}\n")
    return folder / "bin" / "python"


@dataclass(frozen=True)
class Daemon:
    """A process of Spark's own, and the file it talks to."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self, pattern: str) -> str:
        """The first match of `pattern` in what it says, by and by. Raises AssertionError."""
        wait_until(lambda: self._found(pattern) is not None, lambda: f"{pattern} in:\n{self.log.read_text()[-3000:]}")
        return self._found(pattern) or ""

    def _found(self, pattern: str) -> str | None:
        found = re.search(pattern, self.log.read_text())
        return found and found.group(0)


@dataclass(frozen=True)
class Worker(Daemon):
    def executors(self) -> list[psutil.Process]:
        return self.jvms(EXECUTOR)

    def jvms(self, name: str) -> list[psutil.Process]:
        """Those below it with `name` in their command."""
        try:
            below = psutil.Process(self.process.pid).children(recursive=True)
            return [one for one in below if one.name() == "java" and any(name in word for word in one.cmdline())]
        except psutil.Error:  # one that ended meanwhile
            return []

    def tasks(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for executor in self.executors():
            with contextlib.suppress(psutil.Error):
                found += executor.children(recursive=True)
        return found

    def daemon_modules(self) -> set[str]:
        commands = []
        for task in self.tasks():
            with contextlib.suppress(psutil.Error):
                commands.append(task.cmdline())
        return {command[command.index("-m") + 1] for command in commands if "-m" in command}

    def connected_to(self) -> set[int]:
        ports: set[int] = set()
        for task in self.tasks():
            with contextlib.suppress(psutil.Error):
                ports |= {one.raddr.port for one in task.net_connections("tcp") if one.raddr}
        return ports

    def kill(self) -> list[psutil.Process]:
        """The worker and its executors, at once. Returns their Python processes, which find out by themselves."""
        executors, tasks = self.executors(), self.tasks()
        self.process.kill()
        _kill(executors)
        self.process.wait()
        return tasks


class Cluster:
    """A master, and workers with `cores` each; they end with `running`."""

    def __init__(self, folder: Path, cores: int, running: ExitStack) -> None:
        self.folder = folder
        self.python = bare_python(folder / "python")
        self.workers: list[Worker] = []
        self._cores = cores
        self._running = running
        master = running.enter_context(_daemon(folder / "master", "master.Master", DRIVER, "--port", "0"))
        self.url = Daemon(*master).said(r"spark://127\.0\.0\.1:\d+")

    def start_worker(self) -> Worker:
        """One more, at an address and with folders of its own; it will register by and by."""
        number = len(self.workers) + 1
        own = self.folder / f"worker-{number}"
        given = ("--cores", str(self._cores), "--memory", "1g", "--work-dir", str(own), self.url)
        started = self._running.enter_context(_daemon(own, "worker.Worker", f"127.0.0.{number + 1}", *given))
        self.workers.append(Worker(*started))
        return self.workers[-1]


@contextmanager
def cluster(folder: Path, *, workers: int = 1, cores: int = 1) -> Iterator[Cluster]:
    """A cluster in `folder` while the `with` lasts; its workers have registered."""
    with ExitStack() as running:
        one = Cluster(folder, cores, running)
        for worker in [one.start_worker() for _ in range(workers)]:
            worker.said("Successfully registered")
        yield one


def _daemon(folder: Path, name: str, host: str, *arguments: str) -> AbstractContextManager[Started]:
    local = folder / "local"
    local.mkdir(parents=True)
    # What Spark's own start scripts would set; a worker passes it on to its executors.
    environment = {
        "SPARK_LOCAL_IP": host, "SPARK_LOCAL_DIRS": str(local), "SPARK_HOME": str(SPARK),
        "SPARK_SCALA_VERSION": "2.13", "JDK_JAVA_OPTIONS": spark_options(),
    }  # fmt: skip
    command = ["java", "-Xmx256m", "-cp", f"{SPARK}/conf/:{SPARK}/jars/*", f"org.apache.spark.deploy.{name}"]
    return daemon(folder, [*command, "--host", host, "--webui-port", "0", *arguments], environment)


@contextmanager
def daemon(folder: Path, command: list[str], environment: Mapping[str, str]) -> Iterator[Started]:
    """In the foreground, in `folder`; whatever it started has ended when the `with` does."""
    log = folder / "said.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            ending_with_us(command), cwd=folder, env={**os.environ, **environment},
            stdout=said, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield process, log
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """And whatever it has started."""
    below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.kill()
    process.wait()
    _kill(below)
    psutil.wait_procs(below, timeout=20)


def see_them_end(processes: list[psutil.Process]) -> None:
    """By themselves, for a while."""
    _, left = psutil.wait_procs(processes, timeout=20)
    _kill(left)


def _kill(processes: list[psutil.Process]) -> None:
    for one in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


@dataclass(frozen=True)
class Submission:
    process: subprocess.Popen[bytes]
    output: Path
    errors: Path

    def ended(self, within_s: float = 300) -> int:
        return self.process.wait(within_s)

    def goes_on(self, reached: bool) -> bool:
        """`reached`. Raises AssertionError if it has ended."""
        assert self.process.poll() is None, self.errors.read_text()[-3000:]
        return reached


@contextmanager
def submitted(
    to: Cluster, wheel: Path, job: Path, *, properties: Mapping[str, str] | None = None
) -> Iterator[Submission]:
    """``pipeline/submit.py --config JOB --available-now`` away from this project: what it imports is in the wheel."""
    jars = to.folder / "jars"
    write_jars(jars, delta_set().name, session_jars())
    command = [str(SPARK / "bin" / "spark-submit"), "--master", to.url, "--py-files", str(wheel)]
    command += ["--jars", f"{jars}/delta-*/*.jar"]  # as docs/deploying.md says
    for key, value in {**_properties(to), **(properties or {})}.items():
        command += ["--conf", f"{key}={value}"]
    command += [str(PROJECT / "pipeline" / "submit.py"), "--config", str(job), "--available-now"]
    with submission(to.folder, command, {}) as submitted:
        yield submitted


@contextmanager
def submission(folder: Path, command: list[str], environment: Mapping[str, str]) -> Iterator[Submission]:
    """spark-submit in `folder`; it has ended when the `with` does."""
    local = folder / "driver"
    local.mkdir(exist_ok=True)
    environment = {
        **os.environ, "SPARK_LOCAL_IP": DRIVER, "SPARK_LOCAL_DIRS": str(local), "PYTHONPATH": "",
        "SPARK_HOME": str(SPARK), "SPARK_SUBMIT_OPTS": spark_options(), **environment,
    }  # fmt: skip
    output, errors = folder / "submitted.out", folder / "submitted.err"
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(ending_with_us(command), cwd=folder, env=environment, stdout=out, stderr=err)
    try:
        yield Submission(process, output, errors)
    finally:
        _end(process)


def _properties(to: Cluster) -> dict[str, str]:
    of_delta = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")  # docs/first-job.md has no others
    return {
        **{name: NEEDED[name] for name in of_delta},
        "spark.driver.host": DRIVER,
        "spark.driver.bindAddress": DRIVER,
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.pyspark.python": str(to.python),
    }
