"""What a job tells Prometheus, over HTTP as Prometheus reads it."""

import dataclasses
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from pyspark.sql import SparkSession

from pipeline.config.configuration import MetricsConfig
from pipeline.monitoring.metrics import LastLook, Metrics, not_ready, serving, unhealthy
from pipeline.monitoring.progress import Phase, Progress
from sinks.batch.proof import BatchStep
from sources.errors import ConfigurationError, HeldElsewhere, MasterUnreachable
from tests.pipeline.job_toml import job_toml
from tests.pipeline.operator_at_work import Operator, run
from tests.pipeline.sample_progress import TOPIC_PROGRESS
from tests.pipeline.scraping import IN_IDS, KNOWN, TABLE, UNKNOWN, Endpoint, probed, scrape, values
from tests.truth import Fixture

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    served = Endpoint()
    yield served
    served.metrics.stop()


@pytest.fixture(scope="module")
def families(endpoint: Endpoint) -> list[Metric]:
    return endpoint.families(KNOWN, IN_IDS, TOPIC_PROGRESS)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_every_series_shows_what_the_progress_says(endpoint: Endpoint) -> None:
    found = endpoint.values(KNOWN)
    expected = {
        "master_minimum_offset_bytes": 0, "master_maximum_offset_bytes": 900, "received_offset_bytes": 600,
        "committed_offset_bytes": 500, "acknowledged_offset_bytes": 400, "lag_bytes": 400, "lag_seconds": 1.5,
        "until_loss_bytes": 7000, "until_loss_seconds": 86400, "master_epoch": 7, "confirmed_offset_bytes": 800,
        "connected": 1, "batches_total": 1, "commits_total": 6, "records_total": 5, "bytes_total": 500,
        "reconnects_total": 2, "unlisted": 0,
    }  # fmt: skip
    assert {name: found[f"logtwin_{name}", "rocketmq/a"] for name in expected} == expected
    assert found["logtwin_stage_seconds_total", "rocketmq/a", "files"] == 1.5
    assert found["logtwin_stage_seconds_total", "rocketmq/a", "commit"] == 0.75
    assert found["logtwin_incidents_total", "rocketmq/a", "checksum_failure"] == 4
    assert found["logtwin_failures_total", "rocketmq/a", "MasterSilent"] == 2


def test_offsets_that_are_ids_are_told_as_ids(endpoint: Endpoint) -> None:
    found = endpoint.values(KNOWN, IN_IDS)
    in_ids = {name: value for (name, log_id, *_), value in found.items() if name.endswith("_ids")}
    offsets = {"master_minimum": 0, "master_maximum": 900, "received": 600, "committed": 500, "acknowledged": 400}
    assert in_ids == {f"logtwin_{name}_offset_ids": value for name, value in offsets.items()} | {"logtwin_lag_ids": 400}
    assert {log_id for name, log_id, *_ in found if name.endswith("_ids")} == {"dister/c"}
    in_bytes = {name for name, log_id, *_ in found if log_id == "dister/c" and name.endswith("_bytes")}
    assert in_bytes == {"logtwin_until_loss_bytes"}


def test_a_topic_has_offsets_by_partition_and_a_lag_of_its_own(endpoint: Endpoint) -> None:
    found = endpoint.values(TOPIC_PROGRESS)
    assert found["logtwin_lag_offsets", "kafka/east/orders"] == 400
    of_partitions = {key: value for key, value in found.items() if key[0].startswith("logtwin_partition_")}
    names = ("master_minimum_offset", "master_maximum_offset", "committed_offset", "acknowledged_offset", "lag_offsets")
    expected = {"0": (0, 600, 300, 250, 300), "2": (0, 300, 200, None, 100)}
    assert of_partitions == {
        (f"logtwin_partition_{name}", "kafka/east/orders", at): value
        for at, values in expected.items()
        for name, value in zip(names, values, strict=True)
        if value is not None
    }
    assert not [name for name, *_ in found if name.endswith(("_ids", "_offset_bytes", "_lag_bytes"))]


def test_what_is_not_known_is_absent(endpoint: Endpoint) -> None:
    found = endpoint.values(UNKNOWN)
    known = "batches_total commits_total records_total bytes_total stage_seconds_total reconnects_total incidents_total"
    known += " failures_total connected phase"
    assert {name for name, log_id, *_ in found if log_id} == {f"logtwin_{name}" for name in known.split()}
    assert found["logtwin_connected", "rocketmq/b"] == 0
    # Prometheus sees no increase in a series that begins with its first event
    for condition in ("gap", "below_minimum", "above_maximum", "rewritten", "checksum_failure", "undecodable"):
        assert found["logtwin_incidents_total", "rocketmq/b", condition] == 0
    for error in ("MasterUnreachable", "MasterSilent", "BelowMinimum", "CorruptRecord", "TakenOver"):
        assert found["logtwin_failures_total", "rocketmq/b", error] == 0
    for step in BatchStep:
        assert found["logtwin_stage_seconds_total", "rocketmq/b", step.value] == 0


def test_a_part_may_be_known_or_not_apply(endpoint: Endpoint) -> None:
    """A loss whose time nobody can tell; a reader of files, which has no connection."""
    found = endpoint.values(dataclasses.replace(KNOWN, until_loss_s=None), dataclasses.replace(UNKNOWN, role="reader"))
    assert found["logtwin_until_loss_bytes", "rocketmq/a"] == 7000
    assert ("logtwin_until_loss_seconds", "rocketmq/a") not in found
    assert ("logtwin_connected", "rocketmq/b") not in found


@pytest.mark.parametrize("phase", Phase)
def test_a_log_is_in_one_phase(endpoint: Endpoint, phase: Phase) -> None:
    found = endpoint.values(dataclasses.replace(KNOWN, phase=phase))
    shown = {key[2]: value for key, value in found.items() if key[0] == "logtwin_phase"}
    assert shown == {one.value: float(one is phase) for one in Phase}


def test_a_typed_table_says_what_it_has_made_and_what_keeps_it(endpoint: Endpoint) -> None:
    failing = dataclasses.replace(TABLE, table="strict", error=ConfigurationError("another definition"))
    found = endpoint.values(KNOWN, tables=[TABLE, failing])
    assert {key[:1] + key[2:]: value for key, value in found.items() if key[0].startswith("logtwin_table_")} == {
        (f"logtwin_table_{name}", table): value
        for table, is_failing in (("orders", 0), ("strict", 1))
        for name, value in (
            ("rows_total", 30),
            ("unfit_values_total", 2),
            ("lag_seconds", 1.5),
            ("failing", is_failing),
        )
    }


def test_a_scrape_is_of_one_poll() -> None:
    metrics = Metrics()
    metrics.update([KNOWN])
    scraping = metrics.collect()
    first = [next(scraping), next(scraping)]
    metrics.update([UNKNOWN])
    of_logs = [sample for family in (*first, *scraping) for sample in family.samples if "log_id" in sample.labels]
    assert {sample.labels["log_id"] for sample in of_logs} == {"rocketmq/a"}


def test_jobs_of_one_process_do_not_meet(endpoint: Endpoint) -> None:
    with serving(MetricsConfig(port=0)) as other:
        other.update([UNKNOWN])
        assert {log_id for _, log_id, *_ in endpoint.values(KNOWN) if log_id} == {"rocketmq/a"}


def test_the_endpoint_listens_on_the_loopback_until_the_job_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with pytest.raises(KeyboardInterrupt), serving(MetricsConfig(port=0)):
        [(host, port)] = re.findall(r"http://(.+):(\d+)/metrics", caplog.text)
        assert host == "127.0.0.1"
        assert "logtwin_build_info" in scrape(int(port))
        raise KeyboardInterrupt
    assert not is_open(int(port))


@pytest.mark.parametrize(
    ("logs", "health", "ready"),
    [
        ([KNOWN], (200, "ok"), (200, "ok")),
        ([KNOWN, dataclasses.replace(KNOWN, phase=Phase.DONE)], (200, "ok"), (200, "ok")),
        ([], (200, "ok"), (200, "ok")),  # a shard without logs
        ([dataclasses.replace(KNOWN, phase=Phase.WAITING, error=HeldElsewhere("held"))], (200, "ok"), (200, "ok")),
        ([KNOWN, UNKNOWN], (200, "ok"), (503, "rocketmq/b: starting")),
        (
            [dataclasses.replace(KNOWN, phase=Phase.WAITING, error=MasterUnreachable("the master is away"))],
            (200, "ok"),
            (503, "rocketmq/a: waiting: the master is away"),
        ),
        (
            [dataclasses.replace(KNOWN, phase=Phase.FAILED, error=MasterUnreachable("the log is gone")), UNKNOWN],
            (503, "rocketmq/a: failed: the log is gone"),
            (503, "rocketmq/a: failed: the log is gone\nrocketmq/b: starting"),
        ),
    ],
)
def test_probes_tell_the_truth(
    endpoint: Endpoint, logs: list[Progress], health: tuple[int, str], ready: tuple[int, str]
) -> None:
    endpoint.metrics.update(logs)
    assert probed(endpoint.port, "/health") == health
    assert probed(endpoint.port, "/ready") == ready
    assert probed(endpoint.port, "/nothing")[0] == 404


def test_a_job_that_looks_no_more_is_not_well() -> None:
    assert unhealthy(LastLook([KNOWN], 59)) == []
    assert (unhealthy(LastLook(age_s=600)), not_ready(LastLook(age_s=600))) == ([], ["the job starts"])
    assert unhealthy(LastLook([], 61)) == ["the job has not looked at its logs for 61 s"]
    assert unhealthy(LastLook([KNOWN], 61)) == ["the job has not looked at its logs for 61 s"]


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70000), ("192.0.2.1", 0)])
def test_an_address_where_nobody_can_listen_is_a_configuration_error(host: str, port: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"port = {port}, host = '{host}'"):
        Metrics().serve(host, port)


def test_replicate_says_so_before_it_starts_anything(
    endpoint: Endpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = job_toml(tmp_path, {"path": tmp_path}, metrics={"port": endpoint.port})
    code, _, err = run(capsys, "replicate", "--config", job)
    assert (code, f"[metrics] port = {endpoint.port}" in err) == (2, True)


def test_a_job_can_be_watched_while_it_runs(
    session: SparkSession,
    fixture_550: Fixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen: list[dict[tuple[str, ...], float]] = []

    class Watched(Metrics):
        def serve(self, host: str, port: int) -> str:
            self.place = super().serve(host, port)
            return self.place

        def update(self, logs: Sequence[Progress], *more: Any) -> bool:
            goes_on = super().update(logs, *more)
            seen.append(values(scrape(int(self.place.rpartition(":")[2]))))
            return goes_on

    monkeypatch.setattr("pipeline.monitoring.metrics.Metrics", Watched)
    operator = Operator(tmp_path, capsys)
    operator.configure(path=fixture_550.commitlog_path)
    operator.job.write_text(f"{operator.job.read_text()}[metrics]\nport = 0\n")
    operator.replicates()
    for name in ("logtwin_master_maximum_offset_bytes", "logtwin_committed_offset_bytes"):
        assert {found.get((name, "rocketmq/test")) for found in seen} - {None, 0} == {fixture_550.max_offset}


def test_the_document_and_the_endpoint_name_the_same(families: list[Metric]) -> None:
    row = r"^\| `(\w+)` \| (\w+) \| (\S+) \| ((?:`\w+`(?:, )?)+|–) \| (.+) \|$"
    documented = {
        (name, kind, unit, frozenset(re.findall(r"\w+", names_of_labels)), meaning)
        for name, kind, unit, names_of_labels, meaning in re.findall(row, DOCUMENT.read_text(), re.MULTILINE)
    }
    found = {
        (sample.name, family.type, unit_of(sample.name), frozenset(sample.labels), family.documentation)
        for family in families
        for sample in family.samples
    }
    assert found == documented


def unit_of(name: str) -> str:
    """The unit that a name ends in, as naming rules want it: before `_total`."""
    last = name.removesuffix("_total").rpartition("_")[2]
    return last if last in {"bytes", "ids", "offsets", "seconds"} else "–"
