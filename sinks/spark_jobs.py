"""What ended a Spark job: the error that a task raised, or what Spark itself says."""

from __future__ import annotations

from sources.errors import LogtwinError, ReplicaError, find_error


def job_failure(error: Exception, problem: str, *, log: object, hint: str, offset: int | None = None) -> LogtwinError:
    """Of the `error` that collecting raised: a task's own, as what it was, or a ReplicaError that says `problem`."""
    said = _last_line(str(error))
    return find_error(str(error)) or ReplicaError(problem, log=log, offset=offset, found=said, hint=hint)


def _last_line(trace: str) -> str:
    """What a traceback, of Python or Java, comes to: its last line that is not indented."""
    lines = [line for line in trace.splitlines() if line.strip() and not line[0].isspace()]
    return lines[-1] if lines else trace
