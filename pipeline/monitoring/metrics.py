"""A job's Prometheus metrics: the progress of its logs, as of the last poll.

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
from typing import Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app, start_wsgi_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from pipeline.config.configuration import MetricsConfig
from pipeline.monitoring.probes import LastLook, with_probes
from pipeline.monitoring.progress import PartitionProgress, Phase, Progress, TableProgress
from pipeline.version import own_version
from sinks.batch.result import BatchStep
from sources.errors import ConfigurationError, error_types
from sources.loss import Condition
from sources.offsets import LogId, Unit

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Single:
    """A metric with one series for each log; `value` reads it from the progress."""

    name: str
    meaning: str
    value: Callable[[Progress], float | None]

    def of(self, logs: Sequence[Progress]) -> Metric:
        family = _family(self.name, self.meaning, "log_id")
        for progress in logs:
            value = self.value(progress)
            if value is not None:
                family.add_metric((progress.log_id,), value)
        return family


@dataclass(frozen=True, slots=True)
class _Labelled:
    """A metric with one series for each log and each value of `label`."""

    name: str
    label: str
    meaning: str
    values: Callable[[Progress], Mapping[str, float]]

    def of(self, logs: Sequence[Progress]) -> Metric:
        family = _family(self.name, self.meaning, "log_id", self.label)
        for progress in logs:
            for value_of_label, value in self.values(progress).items():
                family.add_metric((progress.log_id, value_of_label), value)
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


def _connected(progress: Progress) -> float | None:
    # A reader of files has no connection.
    return None if progress.role == "reader" else float(progress.session.connected_since is not None)


def _until_loss_bytes(progress: Progress) -> float | None:
    return None if progress.until_loss is None else progress.until_loss.bytes


def _until_loss_s(progress: Progress) -> float | None:
    return None if progress.until_loss is None else progress.until_loss.seconds


def _phases(progress: Progress) -> Mapping[str, float]:
    return {phase.value: float(phase is progress.phase) for phase in Phase}


def _stages(progress: Progress) -> Mapping[str, float]:
    return {step.value: progress.stage_s.get(step, 0.0) for step in BatchStep}


def _incidents(progress: Progress) -> Mapping[str, float]:
    return {condition.value: progress.incidents.get(condition.value, 0) for condition in Condition}


def _failures(progress: Progress) -> Mapping[str, float]:
    return {kind: progress.failures.get(kind, 0) for kind in error_types()}


_OFFSETS: tuple[tuple[str, str, Callable[[Progress], int | None]], ...] = (
    (
        "master_minimum_offset",
        "where the oldest record that the master holds begins",
        lambda progress: progress.master_minimum,
    ),
    (
        "master_maximum_offset",
        "where the newest record that the master holds ends",
        lambda progress: progress.master_maximum,
    ),
    ("received_offset", "up to where the log was read and proven", lambda progress: progress.received),
    (
        "committed_offset",
        "up to where the log is in the table: the position",
        lambda progress: progress.position,
    ),
    (
        "acknowledged_offset",
        "up to where the master has been sent word that the log is durable; below the committed offset until it is",
        lambda progress: progress.acknowledged,
    ),
    ("lag", "what the master holds and the table does not", lambda progress: progress.lag_offsets),
)


def _in_unit(name: str, meaning: str, value: Callable[[Progress], int | None], unit: Unit) -> _Single:
    """A metric for the logs whose offsets count `unit`."""

    def of_unit(progress: Progress) -> int | None:
        return value(progress) if LogId.parse(progress.log_id).unit == unit else None

    return _Single(
        f"logtwin_{name}_{unit}", meaning if unit == "bytes" else f"{meaning}, where offsets are ids", of_unit
    )


def _of_partitions(name: str, meaning: str, value: Callable[[PartitionProgress], int | None]) -> _Labelled:
    """A metric with one series for each partition of a topic."""

    def values(progress: Progress) -> Mapping[str, float]:
        found = {str(number): value(one) for number, one in sorted(progress.partitions.items())}
        return {number: known for number, known in found.items() if known is not None}

    return _Labelled(f"logtwin_partition_{name}", "partition", meaning, values)


_METRICS: tuple[_Single | _Labelled, ...] = (
    *(_in_unit(*one, unit) for unit in ("bytes", "ids") for one in _OFFSETS),
    _Single(
        "logtwin_lag_offsets",
        "what all partitions of a topic hold and the table does not; some offsets have no record",
        lambda progress: progress.lag_in("offsets"),
    ),
    _of_partitions("master_minimum_offset", "the first offset that the master holds", lambda one: one.minimum),
    _of_partitions("master_maximum_offset", "where the partition ends at the master", lambda one: one.maximum),
    _of_partitions(
        "committed_offset", "up to where the partition is in the table: the position", lambda one: one.position
    ),
    _of_partitions(
        "acknowledged_offset",
        "up to where the consumer group has confirmed that it is durable; never above the committed offset",
        lambda one: one.acknowledged,
    ),
    _of_partitions("lag_offsets", "what the partition holds and the table does not", lambda one: one.lag_offsets),
    _Single(
        "logtwin_lag_seconds",
        "how long ago the first byte that is not committed was first seen at the master; 0 without one",
        lambda progress: progress.lag_s,
    ),
    _Single(
        "logtwin_until_loss_bytes",
        "what the master may still delete before it reaches a byte that is not committed",
        _until_loss_bytes,
    ),
    _Single(
        "logtwin_until_loss_seconds",
        "estimate of when the master deletes a byte that is not committed, at the earliest; 0: it may happen now",
        _until_loss_s,
    ),
    _Single(
        "logtwin_master_epoch",
        "number of the election that the master won, of a group that elects its master",
        lambda progress: progress.master_epoch,
    ),
    _Single(
        "logtwin_confirmed_offset_bytes",
        "up to where no fail-over of such a group takes anything back, as the master said last",
        lambda progress: progress.confirmed,
    ),
    _Single("logtwin_connected", "1 while the session with the master is connected, else 0", _connected),
    _Labelled("logtwin_phase", "phase", "1 for the phase that the log is in, 0 for every other one", _phases),
    _Single(
        "logtwin_batches_total",
        "batches that Spark brought, replays of what was committed before among them",
        lambda progress: progress.batches,
    ),
    _Single(
        "logtwin_commits_total",
        "batches that committed data, each in one commit to the log table",
        lambda progress: progress.commits,
    ),
    _Single("logtwin_records_total", "records committed", lambda progress: progress.records),
    _Single("logtwin_bytes_total", "bytes of the master's log committed", lambda progress: progress.bytes),
    _Labelled(
        "logtwin_stage_seconds_total",
        "stage",
        "time that batches took up to the end of each stage, from the end of the one before",
        _stages,
    ),
    _Single(
        "logtwin_reconnects_total",
        "connections to the master that the session had to make again",
        lambda progress: progress.session.reconnects,
    ),
    _Labelled(
        "logtwin_incidents_total",
        "condition",
        "losses, damage and differences that this run put on record or stopped at, healed or not",
        _incidents,
    ),
    _Labelled(
        "logtwin_failures_total",
        "error",
        "errors that ended the log's query or kept it from starting, healed or not, by their type",
        _failures,
    ),
)

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
