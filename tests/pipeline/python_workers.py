"""The processes in which this test process's session runs tasks."""

import os

import psutil


def daemons() -> list[psutil.Process]:
    """Those of this session that fork workers for tasks."""
    processes = _forks_and_daemons()
    return [process for process in processes.values() if process.ppid() not in processes]


def workers() -> list[psutil.Process]:
    """What these have forked."""
    processes = _forks_and_daemons()
    return [process for process in processes.values() if process.ppid() in processes]


def _forks_and_daemons() -> dict[int, psutil.Process]:
    below = psutil.Process(os.getpid()).children(recursive=True)
    return {process.pid: process for process in below if _is_daemon(process)}


def _is_daemon(process: psutil.Process) -> bool:
    """Whether a process is the daemon or, forked, a worker of it; one that has ended is neither, waited for or not."""
    try:
        return "pipeline.spark.python_daemon" in process.cmdline()
    except psutil.NoSuchProcess:  # a zombie is one too
        return False
