"""A Java process on loopback, for tests: configured, started, awaited, stopped, never left behind."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

from pipeline.system.processes import ending_with_us
from tests.class_archives import class_archive, class_path

_START_TIMEOUT_S = 90
_STOP_TIMEOUT_S = 45  # a broker of RocketMQ may take more than 20 s over an orderly end


class PeerFailed(Exception):
    """A process did not start. The text holds what it said."""


class PeerProcess(ABC):
    """A process as a context manager; everything it writes is below `home`.

    It can be stopped and started again. A subclass names its kind ("broker") and the words by which it says that it has
    booted, and prepares its start.
    """

    kind: ClassVar[str]
    booted: ClassVar[str]

    def __init__(self, version: str, home: Path) -> None:
        self.version = version
        self.home = home
        self._output_file = home / f"{self.kind}.out"
        self._process: subprocess.Popen[str] | None = None
        self._output: threading.Thread | None = None
        self._settled = threading.Event()  # it booted, or ended
        self._booted = False
        self._java_options: str | None = None  # for a class archive, once it is known

    @property
    def pid(self) -> int:
        """Its process id. Raises PeerFailed when it does not run."""
        if self._process is None:
            raise PeerFailed(f"{self.kind} {self.version} does not run")
        return self._process.pid

    @property
    def log(self) -> str:
        """What it said since its first start."""
        return self._output_file.read_text(errors="replace") if self._output_file.exists() else ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.kill()  # what it wrote is in its files, or their pages; an orderly end takes 5 s and more

    def start(self) -> None:
        """Starts it and waits until it says that it has booted. Raises PeerFailed with the end of its log."""
        command = self._prepare()
        environment = os.environ | {"JDK_JAVA_OPTIONS": self._archive(command)} | self._environment()
        self._settled.clear()
        self._booted = False
        self._process = subprocess.Popen(
            ending_with_us(command), cwd=self.home, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
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

    def ensure_started(self) -> None:
        """Starts it unless it runs."""
        if self._process is None or self._process.poll() is not None:
            self.kill()
            self.start()

    @abstractmethod
    def _prepare(self) -> list[str]:
        """Writes what it reads at start; the command line to start it with."""

    def make_archive(self) -> None:
        """Downloads its jars and makes its archive of classes, unless they are there."""
        self._archive(self._prepare())

    def _archive(self, command: Sequence[str]) -> str:
        if self._java_options is None:
            self._java_options = class_archive(f"{self.kind}-{self.version}", class_path(command), self._trial)
        return self._java_options

    def _trial(self, java_options: str) -> None:
        with tempfile.TemporaryDirectory() as home:
            other = self._idle(Path(home))
            other._java_options = java_options
            other.start()
            other.stop()

    def _idle(self, home: Path) -> PeerProcess:
        """One of the same programs that has nothing to do."""
        return type(self)(self.version, home)

    def _environment(self) -> dict[str, str]:
        """What it needs beside our own environment."""
        return {}

    def _read_output(self, process: subprocess.Popen[str]) -> None:
        """Runs in a thread until the process has closed its output, so that it never blocks on a full pipe."""
        if process.stdout is None:
            return
        with process.stdout, self._output_file.open("a") as out:
            for line in process.stdout:
                out.write(line)
                out.flush()
                if self.booted in line:
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
