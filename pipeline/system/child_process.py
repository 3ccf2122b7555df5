"""Child processes that end with ours: in order, and even if we are killed.

On Linux the child asks the kernel for that: this file runs as a program, makes the request, and becomes the wanted
program. subprocess' preexec_fn must not do it: it runs our Python in a forked copy without our threads, and py4j shuts
down the connections of threads that are gone, which the copy shares with us.
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
    """`command`, changed so that its process is killed when the thread that starts it ends, for whatever reason."""
    return [sys.executable, "-IS", __file__, str(os.getpid()), *command]


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


def _become(command: list[str], parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit("the process that started this has ended")
    os.execvp(command[0], command)  # noqa: S606 - our own arguments


if __name__ == "__main__":
    _become(sys.argv[2:], int(sys.argv[1]))
