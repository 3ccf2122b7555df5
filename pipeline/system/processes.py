"""This process and those that it starts: open files, free ports, and children that end with us.

A child ends in order, and even if we are killed. On Linux it asks the kernel for that: this file runs as a program,
makes the request, and becomes the wanted program. subprocess' preexec_fn must not do it: it runs our Python in a forked
copy without our threads, and py4j shuts down the connections of threads that are gone, which the copy shares with us.
"""

from __future__ import annotations

import ctypes
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_TIMEOUT_S: Final = 20.0
_PR_SET_PDEATHSIG: Final = 1


def allow_many_files() -> None:
    """Raise this process's limit of open files as far as the system allows: a job has four for each log."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # a system that allows less than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def prepare_for_many_files(spark: SparkSession) -> None:
    """Raise the limit of open files, and start py4j's callback server. Call it once, before a job opens files.

    Spark calls `foreachBatch` through that server, which would otherwise start with the first stream. It waits with
    select(2), which cannot handle file descriptors above 1,023: with such a one the server ends silently, and no batch
    ever comes.
    """
    from pyspark.java_gateway import ensure_callback_server_started  # other users of this module have no Spark

    allow_many_files()
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]


def free_port(*beside: int) -> int:
    """A free port; those at the distances `beside` from it are free, too.

    It is below the range from which the system assigns ports to clients, so that no other program's connection uses it.
    """
    candidates = random.Random()  # noqa: S311  (a port is no secret)
    while True:
        port = candidates.randrange(20_000, 32_000)
        if all(_is_free(port + distance) for distance in (0, *beside)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def ending_with_us(command: list[str], by: signal.Signals = signal.SIGKILL) -> list[str]:
    """Change `command` so that `by` ends its process when the thread that starts it ends, for whatever reason."""
    return [sys.executable, "-IS", __file__, str(os.getpid()), str(by.value), *command]


def kept_process(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own that gets SIGTERM when this process ends, however it ends."""
    started: Future[subprocess.Popen[bytes]] = Future()

    def keep() -> None:
        try:
            process = subprocess.Popen(  # noqa: S603 - our own arguments
                ending_with_us(command, signal.SIGTERM), start_new_session=True, **options
            )
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()  # the program would end with this thread

    threading.Thread(target=keep, name="keeps a program", daemon=True).start()
    return started.result()


@contextmanager
def child_process(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a program during the `with` block; then terminate it, and after STOP_TIMEOUT_S kill it."""
    # In a session of its own, so that Ctrl-C reaches only us, and we end the program in order.
    with subprocess.Popen(  # noqa: S603 - our own arguments
        ending_with_us(command), start_new_session=True, **options
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _become(command: list[str], parent: int, ends_by: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ends_by)
        if os.getppid() != parent:
            sys.exit("the process that started this has ended")
    os.execvp(command[0], command)  # noqa: S606 - our own arguments


if __name__ == "__main__":
    _become(sys.argv[3:], int(sys.argv[1]), int(sys.argv[2]))
