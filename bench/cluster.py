"""A cluster of two workers with one core each against one such worker: catch-up of eight logs by path.

It uses Spark standalone, spark-submit with the code as a wheel, and a new cluster for each measurement. It compares
records/s of all logs together up to the last commit, without the first commits, as many as there are logs, and so
without the start of daemons, driver and queries. All logs have the same bytes, from the same files, under different
ids.

This machine is the whole cluster: if it has two cores, the driver, which plans and commits, shares them with both
workers, and two workers cannot be twice as fast as one. On separate machines they would share nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from bench.contest import Figure, Goal, Settings, by_turns
from bench.contestants import steady_records_per_s
from bench.payloads import rows, write_log
from sinks.tables import LOG
from tests.pipeline.standalone import build_wheel, cluster, submitted

LOGS = 8
RECORDS = 200_000  # of each log, 270 MB
BODY_BYTES = 1024
BATCHES = 4  # of each log
ROUNDS = 3  # each is two clusters, from their start to their end
NO_LOSS = Goal(least=1.0)


def measure(settings: Settings) -> Iterator[Figure]:
    logs, records = settings.scaled(LOGS, least=2), settings.scaled(RECORDS)
    log = settings.folder / "log"
    log_bytes = write_log(log, BODY_BYTES, records)
    job = _job(settings.folder, log, logs, log_bytes // BATCHES + 1)
    wheel = build_wheel(settings.folder / "wheel")

    def of(workers: int) -> float:
        rate = _records_per_s(settings.folder, wheel, job, workers, logs, logs * rows(log, records))
        print(f"cluster, {workers} worker(s): {rate:,.0f} records/s", flush=True)
        return rate

    taken = by_turns(min(settings.rounds, ROUNDS), lambda _: of(2), lambda _: of(1))
    yield Figure(
        work=f"catch-up of {logs} logs on a cluster",
        ours="2 workers of 1 core",
        against="1 worker of 1 core",
        unit="records/s",
        rounds=taken,
        goal=NO_LOSS,
        details={
            "batches_of_a_log": BATCHES,
            "log_bytes": log_bytes,
            "cores_in_all": os.cpu_count(),
            "driver": "on the same cores",
        },
    )


def _job(folder: Path, log: Path, count: int, batch_bytes: int) -> Path:
    job = folder / "job.toml"
    logs = (
        f'[[logs]]\nid = "rocketmq/bench-{number}"\npath = "{log}"\nmax_bytes_per_trigger = {batch_bytes}\n'
        for number in range(count)
    )
    job.write_text(f'warehouse = "{folder}/lake"\n[metadata]\nenabled = false\n{"".join(logs)}')
    return job


def _records_per_s(folder: Path, wheel: Path, job: Path, workers: int, logs: int, expected: int) -> float:
    """Run the job; its records/s. Raises SystemExit if the job fails, or the table does not have `expected` records."""
    with cluster(folder / "cluster", workers=workers) as there, submitted(there, wheel, job) as sent:
        if sent.ended():
            raise SystemExit(f"the submitted job failed: {sent.output.read_text()[-2000:]}")
    rate = steady_records_per_s(Path(LOG.path(f"{folder}/lake")), expected, left_out=logs)
    for made in ("cluster", "lake"):
        shutil.rmtree(folder / made)
    return rate
