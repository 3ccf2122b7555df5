"""The process that holds masters and sends to them (`bench.sender`), and how a benchmark talks with it.

It prints one line of JSON that says where its masters are, and sends from then on. A line of input ends the sending:
then it prints how many messages the masters have stored. The masters serve until the input ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pipeline.system.processes import child_process
from tests.resident import PROJECT

_END_WITHIN_S = 60.0


class Load:
    """The process, as the benchmark sees it. `masters` is what it says of them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.masters: Any = self._said()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop_sending(self) -> int:
        """Stop the producer. Returns how many messages the masters have stored."""
        if self._process.stdin:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return int(self._said())

    def end(self) -> None:
        """Let the masters stop in order, if they do in time."""
        if self._process.stdin:
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_WITHIN_S)

    def _said(self) -> Any:
        """The next line. Raises SystemExit if the process has ended instead."""
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise SystemExit("the masters have ended")
        return json.loads(line)


@contextmanager
def running_load(kind: str, folder: Path, count: int, rate_per_s: float, topic: str) -> Iterator[Load]:
    """Run the process during the `with` block, with the arguments that `bench.sender` names."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "bench.sender", kind, str(folder), str(count), str(rate_per_s), topic]
    with child_process(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        load = Load(process)
        yield load
        load.end()


def say(value: object) -> None:
    """What the process says, as a line."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def line_awaited() -> threading.Event:
    """Is set when the line of input comes, or the input ends."""
    has_come = threading.Event()
    threading.Thread(target=_await_line, args=(has_come,), daemon=True).start()
    return has_come


def _await_line(has_come: threading.Event) -> None:
    sys.stdin.readline()
    has_come.set()
