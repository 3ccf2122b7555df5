"""HTTP probes for Kubernetes, systemd or a load balancer: is the job healthy, and is it ready?

A failed probe says why: its answer has a line of text for each log that is not as it should be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from pipeline.monitoring.progress import Phase, Progress
from sources.errors import HeldElsewhere

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

SILENT_S: Final = 60.0
"""A job that has not polled its logs for so long hangs: it normally does so several times a second."""

_THERE: Final = (Phase.RUNNING, Phase.DONE)


@dataclass(frozen=True, slots=True)
class LastLook:
    """The logs of a job at its last poll, `age_s` ago; None before the first. A shard may have none."""

    logs: Sequence[Progress] | None = None
    age_s: float = 0.0


def unhealthy(seen: LastLook) -> list[str]:
    """Why the job is unhealthy: logs that failed for good, or a job that hangs. Empty if all is well."""
    failed = [f"{one.log_id}: failed: {one.error}" for one in seen.logs or () if one.phase is Phase.FAILED]
    if (
        seen.logs is not None and seen.age_s > SILENT_S
    ):  # a start may take longer: the first one on a machine downloads jars
        failed.append(f"the job has not looked at its logs for {seen.age_s:.0f} s")
    return failed


def not_ready(seen: LastLook) -> list[str]:
    """The logs that are not replicated at this moment. Empty if all are.

    What a shard waits for is replicated by another job, which may itself be restarted only when this one is ready.
    """
    if seen.logs is None:
        return ["the job starts"]
    absent = (one for one in seen.logs if one.phase not in _THERE and one.phase is not Phase.FAILED)
    late = (one for one in absent if not isinstance(one.error, HeldElsewhere))
    return [*unhealthy(seen), *(f"{one.log_id}: {one.phase}{_because(one)}" for one in late)]


def _because(one: Progress) -> str:
    return "" if one.error is None else f": {one.error}"


def with_probes(metrics: WSGIApplication, seen: Callable[[], LastLook]) -> WSGIApplication:
    """A WSGI application that serves `metrics` at ``/metrics``, the probes beside it, and nothing else."""
    probes = {"/health": unhealthy, "/ready": not_ready}

    def answer(environment: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environment["PATH_INFO"]
        if path == "/metrics":
            return metrics(environment, start)
        probe = probes.get(path)
        lines = ["there are /metrics, /health and /ready"] if probe is None else probe(seen())
        status = HTTPStatus.OK
        if lines:
            status = HTTPStatus.NOT_FOUND if probe is None else HTTPStatus.SERVICE_UNAVAILABLE
        start(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
        return ["\n".join([*(lines or ["ok"]), ""]).encode()]

    return answer
