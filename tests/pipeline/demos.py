"""``logtwin demo``: as a process of its own, as a newcomer runs it, and in this one, with its Spark session."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

from sinks.storage.settings import VARIABLE
from tests.patience import wait_until
from tests.pipeline.operator_at_work import run

PROJECT = Path(__file__).parents[2]


def demo(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pipeline", *_words(folder, arguments)]
    return subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        out, err = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
    assert process.returncode == 0, f"{out}\n{err}"[-4000:]
    return out, err


def interrupted_beyond(end: int, running: subprocess.Popen[str]) -> tuple[str, str]:
    assert running.stderr is not None
    for line in running.stderr:  # the display says a line now and then, once batches are committed
        committed = re.search(r"running, offset ([\d,]+)", line)
        if committed and int(committed[1].replace(",", "")) > end:
            break
    os.kill(running.pid, signal.SIGINT)
    return finish(running)


def processes_of(place: Path) -> list[int]:
    """Those whose command lines name it."""
    found = [(one.pid, one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"])]
    return [pid for pid, command in found if str(place) in " ".join(command)]


class DemoHere:
    """Call it with a folder and the arguments: what it prints, once it has ended well."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        monkeypatch.delenv(VARIABLE, raising=False)  # and what a demo makes of it goes with the test

    def __call__(self, folder: Path, *arguments: str) -> tuple[str, str]:
        said = run(self._capsys, *_words(folder, arguments))
        assert said.code == 0, f"{said.out}\n{said.err}"[-4000:]
        return said.out, said.err


@contextmanager
def ctrl_c_beyond(end: int, table: Path, log_id: str) -> Iterator[None]:
    """To this process, once more of the log than up to `end` is committed: whoever stops by it runs inside."""

    def interrupt() -> None:
        try:
            wait_until(lambda: (DeltaTable(table).transaction_version(f"logtwin/{log_id}@0") or 0) > end, "a commit")
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    waiting = threading.Thread(target=interrupt)
    waiting.start()
    try:
        yield
    finally:
        waiting.join()


def _words(folder: Path, arguments: tuple[str, ...]) -> list[str]:
    return ["demo", "--warehouse", str(folder / "warehouse"), "--store", str(folder / "store"), *arguments]
