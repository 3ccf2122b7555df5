"""A Java process of RocketMQ's on loopback, for tests: configured, started, awaited, stopped, never left behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from pipeline.jars import java, resolve

BOOTED = "boot success"
_PR_SET_PDEATHSIG = 1
_START_TIMEOUT_S = 90
_STOP_TIMEOUT_S = 45  # a broker may take more than 20 s over an orderly end
_MEMORY = ("-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")
_JAVA_17 = (  # without these 4.9.7 cannot load an existing store
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)
_LOGBACK = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %p %t %logger %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


def die_with_parent() -> None:
    """In the child: a test run that is killed cannot stop its brokers, so the kernel does (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class PeerFailed(Exception):
    """A process did not start. The text holds what it said."""


class RocketMQProcess:
    """A process as a context manager; everything it writes is below `home`.

    It can be stopped and started again. A subclass names its kind ("broker"), its module, its main class, and gives
    the lines of its configuration file.
    """

    kind: ClassVar[str]
    module: ClassVar[str]
    main_class: ClassVar[str]

    def __init__(self, version: str, home: Path, settings: Mapping[str, str | int]) -> None:
        self.version = version
        self.home = home
        self._settings = settings
        self._output_file = home / f"{self.kind}.out"
        self._process: subprocess.Popen[str] | None = None
        self._output: threading.Thread | None = None
        self._settled = threading.Event()  # it booted, or ended
        self._booted = False

    @property
    def pid(self) -> int:
        """Its process id. Raises PeerFailed when it does not run."""
        if self._process is None:
            raise PeerFailed(f"{self.kind} {self.version} does not run")
        return self._process.pid

    @property
    def log(self) -> str:
        """What it said since its first start: its standard output and, of 5.x, its log file."""
        files = (self._output_file, *sorted(self.home.glob(f"logs/rocketmqlogs/{self.kind}.log")))
        return "\n".join(file.read_text(errors="replace") for file in files if file.exists())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()  # its files are mapped, so what it wrote is in them; an orderly end takes 5 s and more

    def start(self) -> None:
        """Starts it and waits until it says that it has booted. Raises PeerFailed with the end of its log."""
        command = self._prepare()
        environment = os.environ | {"ROCKETMQ_HOME": str(self.home / "rocketmq")}
        self._settled.clear()
        self._booted = False
        self._process = subprocess.Popen(
            command, cwd=self.home, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", preexec_fn=die_with_parent,
        )  # fmt: skip
        self._output = threading.Thread(target=self._read_output, args=(self._process,), daemon=True)
        self._output.start()
        try:
            self._settled.wait(_START_TIMEOUT_S)
        finally:
            if not self._booted:
                self.kill()
        if not self._booted:
            said = self._output_file.read_text()[-4000:]
            raise PeerFailed(f"{self.kind} {self.version} did not start. It said:\n{said}")

    def _prepare(self) -> list[str]:
        """Writes what it reads at start; the command line to start it with."""
        configuration, conf = self.home / f"{self.kind}.conf", self.home / "rocketmq" / "conf"
        temporary = self.home / "tmp"
        for folder in (conf, temporary):
            folder.mkdir(parents=True, exist_ok=True)
        (conf / f"logback_{self.kind}.xml").write_text(_LOGBACK)  # 4.9.x refuses to start without
        configuration.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        folders = (f"-Duser.home={self.home}", f"-Djava.io.tmpdir={temporary}")
        classpath = ("-cp", f"{resolve('org.apache.rocketmq', self.module, self.version)}/*")
        return [java(), *_MEMORY, *_JAVA_17, *folders, *classpath, self.main_class, "-c", str(configuration)]

    def _read_output(self, process: subprocess.Popen[str]) -> None:
        """Runs in a thread until the process has closed its output, so that it never blocks on a full pipe."""
        if process.stdout is None:
            return
        with process.stdout, self._output_file.open("a") as out:
            for line in process.stdout:
                out.write(line)
                out.flush()
                if BOOTED in line:
                    self._booted = True
                    self._settled.set()
        self._settled.set()

    def stop(self) -> None:
        """Ends it as an operator would, by SIGTERM; by force if that takes too long. Idempotent."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap()

    def kill(self) -> None:
        """Ends it by SIGKILL, as a crash does. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait()
        if self._output is not None:
            self._output.join()
        self._process = self._output = None
