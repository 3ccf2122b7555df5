"""What ended a Spark job: the error that a task raised, or what Spark itself says; and that in few words."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError

from sources.errors import LogtwinError, ReplicaError, find_error


def job_failure(error: Exception, problem: str, *, log: object, hint: str, offset: int | None = None) -> LogtwinError:
    """Of the `error` that collecting raised: a task's own, as what it was, or a ReplicaError that says `problem`."""
    said = _last_line(str(error))
    return find_error(str(error)) or ReplicaError(problem, log=log, offset=offset, found=said, hint=hint)


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
