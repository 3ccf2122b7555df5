"""Real RocketMQ brokers on loopback, for tests: configured, started, awaited, stopped."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from pipeline.jars import java, resolve
from tests.peers.wire import Connection, Refused

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


def _die_with_parent() -> None:
    """In the child: a test run that is killed cannot stop its brokers, so the kernel does (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class BrokerFailed(Exception):
    """A broker did not start. The text holds what it said."""


class Broker:
    """A real broker as a context manager; everything it writes is below `home`.

    `settings` are lines of broker.conf (brokerRole, inSyncReplicas, haMasterAddress, …) over those of a lone master
    with small files. It can be stopped and started again on its store, on the same ports.
    """

    def __init__(self, version: str, home: Path, settings: Mapping[str, str | int] | None = None) -> None:
        self.version = version
        self.home = home
        self.port, self.ha_port = free_ports()
        self.store = home / "store"
        self.commitlog = self.store / "commitlog"
        self._output_file = home / "broker.out"
        self._settings = self._defaults() | dict(settings or {})
        self._process: subprocess.Popen[str] | None = None
        self._output: threading.Thread | None = None
        self._settled = threading.Event()  # it booted, or ended
        self._booted = False

    def _defaults(self) -> dict[str, str | int]:
        return {
            "brokerClusterName": "c1",
            "brokerName": "b1",
            "brokerId": 0,
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",  # 5.x; the HA port, and all of 4.9.x, bind every interface
            "listenPort": self.port,
            "haListenPort": self.ha_port,
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.commitlog),
            "mappedFileSizeCommitLog": 1024 * 1024,
            "mappedFileSizeConsumeQueue": 60_000,
            "maxMessageSize": 512 * 1024,
            "maxHashSlotNum": 5_000,
            "maxIndexNum": 20_000,
            "autoCreateTopicEnable": "true",
            "timerWheelEnable": "false",  # 5.x; its file alone is 38 MB
            "diskMaxUsedSpaceRatio": 95,
        }

    @property
    def pid(self) -> int:
        """Its process id. Raises BrokerFailed when it does not run."""
        if self._process is None:
            raise BrokerFailed(f"broker {self.version} does not run")
        return self._process.pid

    @property
    def log(self) -> str:
        """What it said since its first start: its standard output and, of 5.x, its log file."""
        files = (self._output_file, *sorted(self.home.glob("logs/rocketmqlogs/broker.log")))
        return "\n".join(file.read_text(errors="replace") for file in files if file.exists())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts it and waits until it says that it has booted. Raises BrokerFailed with the end of its log."""
        command = self._prepare()
        environment = os.environ | {"ROCKETMQ_HOME": str(self.home / "rocketmq")}
        self._settled.clear()
        self._booted = False
        self._process = subprocess.Popen(
            command, cwd=self.home, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", preexec_fn=_die_with_parent,
        )  # fmt: skip
        self._output = threading.Thread(target=self._read_output, args=(self._process,), daemon=True)
        self._output.start()
        try:
            self._settled.wait(_START_TIMEOUT_S)
        finally:
            if not self._booted:
                self.kill()
        if not self._booted:
            raise BrokerFailed(
                f"broker {self.version} did not start. It said:\n{self._output_file.read_text()[-4000:]}"
            )
        self._await_runtime_info()

    def _await_runtime_info(self) -> None:
        """In the first second after its start a broker answers request 28 with an error: it has no statistics yet."""
        attempt = retry(
            retry=retry_if_exception_type(Refused), stop=stop_after_delay(20), wait=wait_fixed(0.1), reraise=True
        )
        with Connection(self.port) as connection:
            attempt(connection.log_bounds)()

    def _prepare(self) -> list[str]:
        """Writes what it reads at start; the command line to start it with."""
        configuration, conf = self.home / "broker.conf", self.home / "rocketmq" / "conf"
        temporary = self.home / "tmp"
        for folder in (conf, temporary):
            folder.mkdir(parents=True, exist_ok=True)
        (conf / "logback_broker.xml").write_text(_LOGBACK)  # 4.9.x refuses to start without
        configuration.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        folders = (f"-Duser.home={self.home}", f"-Djava.io.tmpdir={temporary}")
        classpath = ("-cp", f"{resolve('org.apache.rocketmq', 'rocketmq-broker', self.version)}/*")
        main = ("org.apache.rocketmq.broker.BrokerStartup", "-c", str(configuration))
        return [java(), *_MEMORY, *_JAVA_17, *folders, *classpath, *main]

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


def free_ports() -> tuple[int, int]:
    """A broker's port and its HA port. A broker also takes the one two below its port.

    Below the range from which the system gives ports to clients, so that no connection of another test sits on them.
    """
    candidates = random.Random()
    while True:
        port = candidates.randrange(20_000, 32_000)
        if all(map(_is_free, (port - 2, port, port + 1))):
            return port, port + 1


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
