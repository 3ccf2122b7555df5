"""A process that holds masters and sends to them, and how the benchmark that started it talks with it.

It prints one line of JSON that says where its masters are, and sends from then on. A line of input ends the sending:
then it prints how many messages each master has stored. The masters serve until the input ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pipeline.system.child_process import child_process
from tests.resident import PROJECT


class Load:
    """The process, as the benchmark sees it. `masters` is what it says of them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.masters: Any = json.loads(self._said())

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop_sending(self) -> int:
        """Stop the producer. Returns how many messages all masters have stored."""
        if self._process.stdin:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return sum(json.loads(self._said()))

    def _said(self) -> str:
        """The next line. Raises SystemExit if the process has ended instead."""
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise SystemExit("the masters have ended")
        return line


@contextmanager
def running_load(module: str, *arguments: object) -> Iterator[Load]:
    """Run ``python -m module arguments`` during the `with` block."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with child_process(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Load(process)


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
