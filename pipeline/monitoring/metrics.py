"""A job's Prometheus metrics, and its probes: what `pipeline/monitoring/progress.py` declares, as of the last poll.

Unknown values are absent, never 0. Counters are totals of this run: they begin at 0 with every start, which Prometheus
treats as a reset. Their series exist from the beginning, so that the first incident of a kind shows as an increase.
Names end in their unit (Prometheus' naming rules); docs/metrics.md lists all of them.

The probes are for Kubernetes, systemd or a load balancer: is the job healthy, and is it ready? A failed one says why:
its answer has a line of text for each log that is not as it should be.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app, start_wsgi_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.core import Metric as Sampled
from prometheus_client.registry import Collector

from pipeline.config.configuration import MetricsConfig
from pipeline.monitoring.facts import Metric, metrics_of
from pipeline.monitoring.progress import PartitionProgress, Phase, Progress, TableProgress
from pipeline.monitoring.upkeep import Upkeep
from pipeline.version import own_version
from sources.errors import ConfigurationError, HeldElsewhere
from sources.offsets import Unit

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

log = logging.getLogger(__name__)

SILENT_S: Final = 60.0
"""A job that has not polled its logs for so long hangs: it normally does so several times a second."""

_THERE: Final = (Phase.RUNNING, Phase.DONE)


@dataclass(frozen=True, slots=True)
class _Family:
    """A metric with one series for each subject, a log or a table, and for each value of its label if it has one.

    `subject` is the label that names it, and its field; empty for what is of the whole job. With `unit`, only logs
    whose offsets count it have series.
    """

    subject: str
    metric: Metric
    value: Callable[[Any], Any]
    unit: Unit | None = None

    def of(self, subjects: Sequence[Any]) -> Sampled:
        label = self.metric.label
        kind = CounterMetricFamily if self.metric.name.endswith("_total") else GaugeMetricFamily
        labels = tuple(name for name in (self.subject, label) if name)
        family = kind(f"logtwin_{self.metric.name}", self.metric.meaning, labels=labels)
        for one in subjects:
            if self.unit is None or self.unit == one.unit:
                found = self.value(one)
                name = (getattr(one, self.subject),) if self.subject else ()
                labelled = {(*name, at): value for at, value in found.items()} if label else {name: found}
                for named, value in labelled.items():
                    if value is not None:
                        family.add_metric(named, value)
        return family


_NOTES: Final[Mapping[Unit, str]] = {
    "bytes": "",
    "ids": ", where offsets are ids",
    "offsets": ", of all partitions of a topic; some offsets have no record",
}


def _told(declared: type, subject: str) -> Iterator[_Family]:
    for one, value in metrics_of(declared):
        if not one.units:
            yield _Family(subject, one, value)
        for unit in one.units:
            named = replace(one, name=f"{one.name}_{unit}", meaning=one.meaning + _NOTES[unit])
            yield _Family(subject, named, value, unit)


def _told_of_partitions() -> Iterator[_Family]:
    """The metrics of a topic's partitions, which a label tells apart."""
    for one, value in metrics_of(PartitionProgress):
        name = f"partition_{one.name}" + ("_offsets" if "offsets" in one.units else "")
        of_a_partition = Metric(name, f"of a partition: {one.meaning}", label="partition")
        yield _Family("log_id", of_a_partition, partial(_in_partitions, value))


def _in_partitions(value: Callable[[PartitionProgress], Any], progress: Progress) -> Mapping[str, Any]:
    return {str(number): value(one) for number, one in sorted(progress.partitions.items())}


_OF_LOGS: Final = (*_told(Progress, "log_id"), *_told_of_partitions())
_OF_TABLES: Final = tuple(_told(TableProgress, "table"))
_OF_UPKEEP: Final = tuple(_told(Upkeep, ""))


class Metrics(Collector):
    """The metrics of one job, in their own registry, so that jobs in one process do not collide.

    Call `update` now and then. `serve` exposes them over HTTP until `stop`.
    """

    def __init__(self) -> None:
        self._shown: tuple[Sequence[Progress], Sequence[TableProgress], Sequence[Upkeep]] | None = None
        self._looked_at_s = time.monotonic()
        self._server: tuple[WSGIServer, threading.Thread] | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def update(
        self, logs: Sequence[Progress], tables: Sequence[TableProgress] = (), upkeep: Upkeep | None = None
    ) -> bool:
        """Set what the next scrape shows. Always returns True: metrics never end a job."""
        self._looked_at_s = time.monotonic()
        kept = () if upkeep is None else (upkeep,)
        self._shown = (
            tuple(logs),
            tuple(tables),
            kept,
        )  # one assignment: a scrape in another thread sees one poll only
        return True

    def collect(self) -> Iterator[Sampled]:
        """Yield all metrics; the registry calls it at each scrape."""
        yield InfoMetricFamily("logtwin_build", "the version of logtwin that runs", {"version": own_version()})
        logs, tables, upkeep = self._shown or ((), (), ())
        yield from (one.of(logs) for one in _OF_LOGS)
        yield from (one.of(tables) for one in _OF_TABLES)
        yield from (one.of(upkeep) for one in _OF_UPKEEP)

    def serve(self, host: str, port: int) -> str:
        """Answer scrapes and probes in threads of their own; port 0 takes a free one. Returns ``host:port``.

        Raises ConfigurationError if it cannot listen there.
        """
        try:
            self._server = start_wsgi_server(port, host, self._registry)
        except (OSError, OverflowError) as error:
            raise ConfigurationError(
                f"[metrics] port = {port}, host = {host!r}: metrics cannot be served there",
                expected="a free port and an address of this machine",
                found=error,
                hint="Another job may have it: logtwin status says whether one of this warehouse runs. 0 takes a free "
                "port; without the key there is no endpoint.",
            ) from error
        server = self._server[0]
        server.set_app(with_probes(make_wsgi_app(self._registry), self._seen))
        return "{}:{}".format(*server.server_address)

    def _seen(self) -> LastLook:
        return LastLook(None if self._shown is None else self._shown[0], time.monotonic() - self._looked_at_s)

    def stop(self) -> None:
        """Free the port. Idempotent."""
        if self._server is None:
            return
        server, thread = self._server
        self._server = None
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def serving(config: MetricsConfig) -> Iterator[Metrics]:
    """A job's metrics, served during the `with` block if the configuration has a port. Raises ConfigurationError."""
    metrics = Metrics()
    try:
        if config.port is not None:
            log.info("metrics: http://%s/metrics", metrics.serve(config.host, config.port))
        yield metrics
    finally:
        metrics.stop()


@dataclass(frozen=True, slots=True)
class LastLook:
    """The logs of a job at its last poll, `age_s` ago; None before the first. A shard may have none."""

    logs: Sequence[Progress] | None = None
    age_s: float = 0.0


def unhealthy(seen: LastLook) -> list[str]:
    """Why the job is unhealthy: logs that failed for good, or a job that hangs. Empty if all is well."""
    failed = [f"{one.log_id}: failed: {one.error}" for one in seen.logs or () if one.phase is Phase.FAILED]
    if seen.logs is not None and seen.age_s > SILENT_S:  # a start takes longer where it downloads jars
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
