"""What an endpoint of metrics answers to a real scrape, and progress to show."""

import http.client
from collections.abc import Sequence
from dataclasses import replace

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from pipeline.monitoring.metrics import Metrics
from pipeline.monitoring.progress import Phase, Progress, TableProgress
from pipeline.monitoring.upkeep import Upkeep
from sinks.batch.proof import BatchStep
from sources.offsets import Offset
from tests.pipeline.sample_progress import PROGRESS

OPENMETRICS = "application/openmetrics-text; version=1.0.0"

KNOWN = replace(
    PROGRESS,
    log_id="rocketmq/a",
    master_epoch=7,
    confirmed=Offset(800),
    commits=6,
    unlisted=False,
    stage_s={BatchStep.FILES: 1.5, BatchStep.COMMIT: 0.75},
    incidents={"checksum_failure": 4},
    failures={"MasterSilent": 2},
)
IN_IDS = replace(KNOWN, log_id="dister/c", master_epoch=None, confirmed=None)
"""The same of a log whose offsets are ids."""
UNKNOWN = Progress(log_id="rocketmq/b", phase=Phase.STARTING, role="slave", master="10.0.0.6:10912", reconnects=0)
TABLE = TableProgress("orders", rows=30, unfit_values=2, lag_s=1.5, error=None)


class Endpoint:
    def __init__(self) -> None:
        self.metrics = Metrics()
        self.address = self.metrics.serve("127.0.0.1", 0)
        self.port = int(self.address.rpartition(":")[2])

    def values(self, *logs: Progress, tables: Sequence[TableProgress] = ()) -> dict[tuple[str, ...], float]:
        """Of the plain text form, see `values`."""
        self.metrics.update(logs, tables)
        return values(scrape(self.port))

    def families(self, *logs: Progress) -> list[Metric]:
        """Of the OpenMetrics form, with a typed table and upkeep; its parser is strict about names and values."""
        self.metrics.update(logs, [TABLE], Upkeep(watched_since="2026-11-28T12:00:00+00:00", failures=1))
        return list(parse_openmetrics(scrape(self.port, OPENMETRICS)))  # type: ignore[no-untyped-call]


def scrape(port: int, accept: str = "text/plain") -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/metrics", headers={"Accept": accept})
        return str(connection.getresponse().read(), "utf-8")
    finally:
        connection.close()


def probed(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, str(answer.read(), "utf-8").strip()
    finally:
        connection.close()


def values(text: str) -> dict[tuple[str, ...], float]:
    """Name and label values, those of `log_id` first -> value."""
    return {
        (sample.name, sample.labels.pop("log_id", ""), *sample.labels.values()): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }
