"""A job's Prometheus metrics: the facts of its logs that have one (`pipeline/monitoring/progress.py`), as of its last
poll, and those of its typed tables.

Unknown values are absent, never 0. Counters are totals of this run: they begin at 0 with every start, which Prometheus
treats as a reset. Their series exist from the beginning, so that the first incident of a kind shows as an increase.
Names end in their unit (Prometheus' naming rules); docs/metrics.md lists all of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app, start_wsgi_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from pipeline.config.configuration import MetricsConfig
from pipeline.monitoring.facts import described
from pipeline.monitoring.probes import LastLook, with_probes
from pipeline.monitoring.progress import PartitionProgress, Progress, TableProgress
from pipeline.version import own_version
from sources.errors import ConfigurationError
from sources.offsets import Unit

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _OfLogs:
    """A metric with one series for each log whose offsets count `unit`, and for each value of `label` if it has one."""

    name: str
    meaning: str
    label: str
    unit: Unit | None  # None: whatever they count
    value: Callable[[Progress], Any]

    def of(self, logs: Sequence[Progress]) -> Metric:
        family = _family(self.name, self.meaning, "log_id", *([self.label] if self.label else []))
        for progress in logs:
            if self.unit is None or self.unit == progress.unit:
                found = self.value(progress)
                labelled = {(at,): one for at, one in found.items()} if self.label else {(): found}
                for label, one in labelled.items():
                    if one is not None:
                        family.add_metric((progress.log_id, *label), one)
        return family


@dataclass(frozen=True, slots=True)
class _OfTable:
    """A metric with one series for each typed table."""

    name: str
    meaning: str
    value: Callable[[TableProgress], float]

    def of(self, tables: Sequence[TableProgress]) -> Metric:
        family = _family(self.name, self.meaning, "table")
        for one in tables:
            family.add_metric((one.name,), self.value(one))
        return family


def _family(name: str, meaning: str, *labels: str) -> GaugeMetricFamily | CounterMetricFamily:
    if name.endswith("_total"):
        return CounterMetricFamily(name, meaning, labels=labels)
    return GaugeMetricFamily(name, meaning, labels=labels)


_NOTES: Final[Mapping[Unit, str]] = {
    "bytes": "",
    "ids": ", where offsets are ids",
    "offsets": ", of all partitions of a topic; some offsets have no record",
}


def _of_logs() -> Iterator[_OfLogs]:
    for one in described(Progress):
        metric = one.metric
        if metric is None:
            continue
        meaning, value = metric.meaning, metric.value or attrgetter(one.name)
        for unit in metric.units:
            yield _OfLogs(f"logtwin_{metric.name}_{unit}", meaning + _NOTES[unit], metric.label, unit, value)
        if not metric.units:
            yield _OfLogs(f"logtwin_{metric.name}", meaning, metric.label, None, value)


def _of_partitions() -> Iterator[_OfLogs]:
    """Metrics with one series for each partition of a topic."""
    for one in described(PartitionProgress):
        metric = one.metric
        if metric is not None:
            unit = "_offsets" if "offsets" in metric.units else ""
            name, meaning = f"logtwin_partition_{metric.name}{unit}", f"of a partition: {metric.meaning}"
            yield _OfLogs(name, meaning, "partition", None, _in_partitions(one.name))


def _in_partitions(fact: str) -> Callable[[Progress], Mapping[str, Any]]:
    return lambda progress: {str(number): getattr(one, fact) for number, one in sorted(progress.partitions.items())}


_METRICS: Final = (*_of_logs(), *_of_partitions())
_TABLE_METRICS: Final = (
    _OfTable("logtwin_table_rows_total", "rows that messages became in a typed table", lambda one: one.rows),
    _OfTable("logtwin_table_unfit_total", "what a typed table could not take, in unfit", lambda one: one.unfit),
    _OfTable(
        "logtwin_table_lag_seconds",
        "how long ago a typed table last stood where its logs stood, or the run began",
        lambda one: one.lag_s,
    ),
    _OfTable(
        "logtwin_table_failing",
        "1 while a typed table cannot be updated, else 0; its logs go on",
        lambda one: float(one.error is not None),
    ),
)


class Metrics(Collector):
    """The metrics of one job, in their own registry, so that jobs in one process do not collide.

    Call `update` on every poll. `serve` exposes them over HTTP until `stop`.
    """

    def __init__(self) -> None:
        self._shown: tuple[Sequence[Progress], Sequence[TableProgress]] = ((), ())
        self._looked_at_s = time.monotonic()
        self._server: tuple[WSGIServer, threading.Thread] | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def update(self, logs: Sequence[Progress], tables: Sequence[TableProgress] = ()) -> bool:
        """Set what the next scrape shows. Always returns True: metrics never end a job."""
        self._looked_at_s = time.monotonic()
        self._shown = (tuple(logs), tuple(tables))  # one assignment: a scrape in another thread sees one poll only
        return True

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; the registry calls it at each scrape."""
        yield InfoMetricFamily("logtwin_build", "the version of logtwin that runs", {"version": own_version()})
        logs, tables = self._shown
        for metric in _METRICS:
            yield metric.of(logs)
        for of_table in _TABLE_METRICS:
            yield of_table.of(tables)

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
                hint="0 takes a free port; without the key there is no endpoint.",
            ) from error
        server = self._server[0]
        server.set_app(with_probes(make_wsgi_app(self._registry), self._seen))
        return "{}:{}".format(*server.server_address)

    def _seen(self) -> LastLook:
        return LastLook(self._shown[0], time.monotonic() - self._looked_at_s)

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
