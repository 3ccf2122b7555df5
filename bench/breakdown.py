"""Watch the contestants of `bench.contestants`: what a steady batch of each spends its time on."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench import contestants
from pipeline.config.configuration import Config
from pipeline.monitoring.progress import Progress
from sinks.tables import KAFKA_LOG, LOG, TableSpec

Parts = Mapping[str, float]
"""The mean time of the steady batches, by part."""


class Breakdown:
    """Runs either contestant in a session, and keeps for each run the parts of the batches behind the first `left_out`.

    Durations are also without the last `end_left_out` batches, as in `without_end`. Stages are those of logtwin: files
    (read, decoded, written, synced in tasks), commit, acknowledge, ledger. Durations are those that Spark reports for a
    micro-batch of either; addBatch is the work, which for logtwin includes the stages.
    """

    def __init__(self, spark: SparkSession, *, left_out: int, end_left_out: int) -> None:
        self._spark = spark
        self._left_out = left_out
        self._end_left_out = end_left_out
        self._stages: list[Parts] = []
        self._our_durations: list[Parts] = []
        self._their_durations: list[Parts] = []

    def ours(self, config: Config, records: int) -> float:
        """Replicate the only log or topic of `config`, which has so many records, with logtwin; steady records/s."""
        seen: dict[int, Progress] = {}
        query: StreamingQuery | None = None

        def look(progress: list[Progress]) -> bool:
            nonlocal query
            seen.setdefault(progress[0].commits, progress[0])
            query = next(iter(self._spark.streams.active), query)  # the job's; it tells when it has ended, too
            return True

        os.sync()  # so that writes of the other contestant do not count
        job = contestants.replicate(self._spark, config, look)
        before = max((commits for commits in seen if commits <= self._left_out), default=0)
        self._stages.append(_stages(seen.get(before), job.progress()[0]))
        self._our_durations.append(self._durations_ms(query))
        return self._rate(KAFKA_LOG if config.topics else LOG, config.warehouse, records)

    def spark_kafka(self, server: str, topic: str, lake: Path, records: int, *, batch_records: int) -> float:
        """Read all `records` that the topic has with Spark's own source; steady records/s."""
        os.sync()
        query = contestants.spark_kafka_replicate(self._spark, server, topic, lake, batch_records=batch_records)
        self._their_durations.append(self._durations_ms(query))
        return self._rate(KAFKA_LOG, str(lake), records)

    def _rate(self, table: TableSpec, lake: str, records: int) -> float:
        left_out = {"left_out": self._left_out, "end_left_out": self._end_left_out}
        return contestants.steady_records_per_s(table.path(lake), records, **left_out)

    def details(self) -> dict[str, Any]:
        """Medians of the runs, for each contestant that was run."""
        found = {
            "ours: stages of a steady batch, s": self._stages,
            "ours: Spark's durations of a steady batch, ms": self._our_durations,
            "against: Spark's durations of a steady batch, ms": self._their_durations,
        }
        return {name: _medians(runs) for name, runs in found.items() if runs}

    def _durations_ms(self, query: StreamingQuery | None) -> Parts:
        batches = [] if query is None else [one for one in query.recentProgress if one["numInputRows"]]
        kept = contestants.without_end(batches, [one["numInputRows"] for one in batches], self._end_left_out)
        steady = [one["durationMs"] for one in kept if one["batchId"] >= self._left_out]
        return {part: statistics.mean(one.get(part, 0) for one in steady) for part in _parts(steady)}


def _stages(before: Progress | None, after: Progress) -> Parts:
    begun = {} if before is None else before.stage_s
    batches = max(1, after.commits - (before.commits if before else 0))
    return {step.value: (spent_s - begun.get(step, 0.0)) / batches for step, spent_s in after.stage_s.items()}


def _medians(runs: Sequence[Parts]) -> dict[str, float]:
    return {part: round(statistics.median(one.get(part, 0.0) for one in runs), 3) for part in _parts(runs)}


def _parts(runs: Iterable[Parts]) -> list[str]:
    """Every name in `runs`, in order of appearance."""
    return list(dict.fromkeys(part for one in runs for part in one))
