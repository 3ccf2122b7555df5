"""What ended a Spark job: the error that a task raised, or what Spark itself says; and that in few words."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError

from sources.errors import LogtwinError, ReplicaError, WorkerLost, find_error

# It did not start; it ended at work; it had ended before it was given any.
_WORKER_LOST = (
    "Python worker failed to connect back",
    "Python worker exited unexpectedly",
    "java.io.IOException: Stream closed",
)


def job_failure(error: Exception, problem: str, *, log: object, hint: str, offset: int | None = None) -> LogtwinError:
    """Of the `error` that collecting raised: a task's own, as what it was, or a ReplicaError that says `problem`."""
    text = str(error)
    found = find_error(text) or lost_worker(text, log=log, offset=offset)
    return found or ReplicaError(problem, log=log, offset=offset, found=_last_line(text), hint=hint)


def lost_worker(text: str, *, log: object, offset: int | None = None) -> WorkerLost | None:
    """What Spark's `text` comes to where it tells of a worker that died, as whoever runs out of memory does."""
    said = next((words for words in _WORKER_LOST if words in text), None)
    if said is None:
        return None
    return WorkerLost(
        "Spark lost a Python worker",
        log=log,
        offset=offset,
        found=said,
        hint="Nothing of the batch was committed; a running job does it again. If that repeats, look for what kills "
        "processes (memory), and whether the machine can start them within 10 s.",
    )


def first_line(error: Exception) -> str:
    """What Spark says of an `error`, without the plan or the stack that comes after it."""
    return str(error).strip().partition("\n")[0]


def first_cause(error: Py4JJavaError) -> Any:
    """The Java exception that all others of `error` wrap."""
    cause: Any = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return cause


def _last_line(trace: str) -> str:
    """What a traceback, of Python or Java, comes to: its last line that is not indented."""
    lines = [line for line in trace.splitlines() if line.strip() and not line[0].isspace()]
    return lines[-1] if lines else trace
