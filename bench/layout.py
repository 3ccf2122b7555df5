"""How much of the table a query for one topic and one hour reads: as the job left it, merged, and after OPTIMIZE.

``python -m bench.layout [megabytes]``. A log of one day, with twenty topics of unequal traffic, is replicated by path
in batches of 32 MB. Then every query is run on each layout of the same rows: the job's, that of `logtwin maintain`, and
those of OPTIMIZE with files of that size, with default and with finer settings. Shares are of the table's files, of
their bytes, and of its rows (those of the row groups that Parquet's statistics cannot rule out), for all scans of a
plan together, by its metrics. Times are ratios to the job's layout: the better of two runs of each query, and
`logtwin verify`, whole and by path.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

from bench.contestants import config_of, replicate
from bench.payloads import LOG_ID
from bench.peers import ON_CORES, plain_session
from bench.scratch import scratch_folder
from pipeline.config.configuration import Config
from pipeline.inspect.selection import ConfiguredLog
from pipeline.operate.maintain import Maintenance
from pipeline.verify.run import Scope, verify_log
from sinks.tables import LOG
from sinks.views.registration import register
from tests.large_log import RECORDS_IN_BLOCK, START_MS, write_large_log
from tests.scans import WITHOUT_CHANGES, Read, reads

_BATCH_BYTES = 32 * 1024 * 1024
_TOPICS = 20
_DAY = timedelta(days=1)
_FINELY = {
    "spark.databricks.io.skipping.mdc.rangeId.max": "32",  # the curve fills a square only if both sides are as long
    "spark.databricks.io.skipping.mdc.sortWithinFiles": "true",
}
_FIRST = datetime.fromtimestamp(START_MS / 1000, UTC)


def traffic() -> list[str]:
    """A block's topics, in the order of its records; topic number n has a share in proportion to 1 / n (Zipf)."""
    names = [f"topic-{number:02d}" for number in range(1, _TOPICS + 1)]
    weights = 1 / np.arange(1, _TOPICS + 1)
    return [str(name) for name in np.random.default_rng(7).choice(names, RECORDS_IN_BLOCK, p=weights / weights.sum())]


@dataclass(frozen=True, slots=True)
class Question:
    """A query for `columns` of the rows of `view` with one topic and a time in a range."""

    name: str
    view: str
    columns: tuple[str, ...]
    time: str
    topic: str
    first: datetime
    span: timedelta

    def asked(self, spark: SparkSession) -> DataFrame:
        in_time = (col(self.time) >= lit(self.first)) & (col(self.time) < lit(self.first + self.span))
        return spark.table(self.view).where((col("topic") == self.topic) & in_time).select(*self.columns)


def questions() -> Iterator[Question]:
    noon, hour = _FIRST + _DAY / 2, timedelta(hours=1)
    messages = ("messages", ("offset", "queue_id", "queue_offset", "keys", "body"), "delivered_timestamp")
    yield Question("busy topic, one hour", *messages, "topic-01", noon, hour)
    yield Question("rare topic, one hour", *messages, "topic-20", noon, hour)
    yield Question("rare topic, the day", *messages, "topic-20", _FIRST, _DAY)
    entries = ("consume_queue", ("offset", "queue_id", "queue_offset"), "store_timestamp")
    yield Question("consume_queue, one hour", *entries, "topic-20", noon, hour)


@dataclass(frozen=True, slots=True)
class TimedRows:
    rows: pa.Table
    read: Read
    seconds: float


def ask(spark: SparkSession, question: Question) -> TimedRows:
    """Run the query twice; the better time counts."""
    taken = []
    for _ in range(2):
        frame = question.asked(spark)
        started = time.perf_counter()
        rows = frame.toArrow()
        taken.append(time.perf_counter() - started)
    return TimedRows(rows.sort_by("offset"), sum(reads(frame), Read()), min(taken))


class Bench:
    """One replica, and the measurements of its first layout."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._config = config
        self._path = LOG.path(config.warehouse)
        self._first: dict[str, TimedRows] = {}
        self._first_verify_s: float | None = None

    def replicate(self) -> None:
        replicate(self._spark, self._config)

    def maintain(self) -> None:
        for _ in Maintenance(self._spark, self._config, dry_run=False).run():
            pass

    def optimize(self) -> None:
        name = "spark.databricks.delta.optimize.maxFileSize"
        self._spark.conf.set(name, self._config.maintain.target_file_bytes)
        self._spark.sql(f"OPTIMIZE delta.`{self._path}`")

    def optimize_finely(self) -> None:
        """Run OPTIMIZE again, as if for the first time, with about as many ranges of time as there are topics."""
        [optimized] = self._spark.sql(f"DESCRIBE HISTORY delta.`{self._path}` LIMIT 1").collect()
        self._spark.sql(f"RESTORE delta.`{self._path}` TO VERSION AS OF {optimized.version - 1}")
        for name, value in _FINELY.items():
            self._spark.conf.set(name, value)
        self.optimize()

    def measure(self, layout: str, change: Callable[[], None]) -> None:
        """Print the costs of every query and of a proof after `change`. Raises SystemExit if an answer differs."""
        started = time.perf_counter()
        change()
        changed = time.perf_counter() - started
        register(self._spark, self._config.warehouse)
        table = self._table()
        print(f"{layout}: {table.files} files, {table.file_bytes / 1e6:,.0f} MB; made in {changed:.0f} s", flush=True)
        for question in questions():
            self._report(question, ask(self._spark, question), table)
        self._verify()

    def _table(self) -> Read:
        [detail] = self._spark.sql(f"DESCRIBE DETAIL delta.`{self._path}`").collect()
        return Read(detail.numFiles, detail.sizeInBytes, self._spark.table(LOG.name).count())

    def _report(self, question: Question, answer: TimedRows, table: Read) -> None:
        first = self._first.setdefault(question.name, answer)
        if not answer.rows.num_rows or not answer.rows.equals(first.rows):
            raise SystemExit(f"{question.name}: another answer than before")
        read = answer.read
        print(
            f"  {question.name:>24}: {answer.rows.num_rows:>7,} rows;"
            f" files {read.files:>4} = {read.files / table.files:6.1%},"
            f" bytes {read.file_bytes / table.file_bytes:6.1%}, rows read {read.rows / table.rows:6.1%};"
            f" time × {answer.seconds / first.seconds:.2f} ({answer.seconds:.2f} s)",
            flush=True,
        )

    def _verify(self) -> None:
        summary = verify_log(self._spark, self._config.warehouse, ConfiguredLog.alone(self._config.logs[0]), Scope())
        if summary.problem is not None:
            raise SystemExit(f"not equal: {summary.as_json()}")
        self._first_verify_s = self._first_verify_s or summary.seconds
        print(f"  {'verify':>24}: time × {summary.seconds / self._first_verify_s:.2f} ({summary.seconds:.1f} s)")


def main(megabytes: int = 5000) -> None:
    properties = {**ON_CORES, "spark.driver.memory": "2g", **WITHOUT_CHANGES}
    with scratch_folder() as folder, plain_session(folder, properties) as spark:
        size_bytes = megabytes * 1_000_000
        write_large_log(folder / "log", size_bytes, topics=traffic(), span_ms=_DAY // timedelta(milliseconds=1))
        log = {"id": str(LOG_ID), "path": str(folder / "log"), "max_bytes_per_trigger": _BATCH_BYTES}
        bench = Bench(spark, config_of(folder / "lake", logs=[log]))
        bench.measure("as the job left it", bench.replicate)
        bench.measure("after logtwin maintain", bench.maintain)
        bench.measure("after OPTIMIZE", bench.optimize)
        bench.measure("after OPTIMIZE with finer settings", bench.optimize_finely)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
