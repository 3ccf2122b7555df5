"""A program that runs beside ours, and ends with it: in our order, and also where we are killed.

That the kernel ends it then is asked for in the child (Linux), by this file as a program of its own, which then becomes
the one that is wanted. subprocess' preexec_fn must not do it: it runs our Python in a copy of us where our threads are
gone, and py4j shuts down the connections of threads that are gone. They are ours, too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

STOP_TIMEOUT_S: Final = 20.0
_PR_SET_PDEATHSIG: Final = 1


def ending_with_us(command: list[str]) -> list[str]:
    """`command` as one that is killed when the thread ends that starts it, whatever ends that."""
    return [sys.executable, "-IS", __file__, str(os.getpid()), *command]


@contextmanager
def child_process(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """The program while the `with` lasts; then it is asked to end, and after STOP_TIMEOUT_S made to."""
    # A session of its own: Ctrl-C is for us, and we end it in our order.
    process = subprocess.Popen(  # noqa: S603 - our own arguments
        ending_with_us(command), start_new_session=True, **options
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _become(command: list[str], parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit("who started this has ended")
    os.execvp(command[0], command)  # noqa: S606 - our own arguments


if __name__ == "__main__":
    _become(sys.argv[2:], int(sys.argv[1]))
