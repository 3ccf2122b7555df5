"""The whole pipeline, by path: logtwin's own sink against Spark's Delta writer, with the same source and session.

``python -m bench.pipeline [megabytes] [rounds]``. Both read the same segment files into a Delta table that is new each
time; they take turns, after one round that does not count. Wall time is compared, as a ratio per round.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from bench.contestants import config_of, replicate
from bench.payloads import LOG_ID
from bench.peers import ON_CORES, plain_session
from bench.scratch import scratch_folder
from tests.large_log import write_large_log


def with_logtwin(spark: SparkSession, log: Path, lake: Path) -> None:
    replicate(spark, config_of(lake, logs=[{"id": str(LOG_ID), "path": str(log)}]))


def with_delta_writer(spark: SparkSession, log: Path, lake: Path) -> None:
    records = spark.readStream.format("logtwin").options(id=str(LOG_ID), path=str(log)).load()
    query = (
        records.writeStream.format("delta")
        .option("checkpointLocation", str(lake / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(lake / "log"))
    )
    query.awaitTermination()


def main(megabytes: int = 500, rounds: int = 3) -> None:
    with scratch_folder() as folder, plain_session(folder, ON_CORES) as spark:
        size_bytes = write_large_log(folder / "log", megabytes * 1_000_000)
        ways = {"logtwin's sink": with_logtwin, "Delta's writer": with_delta_writer}
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds + 1):
            for name, way in ways.items():
                lake = folder / f"{number}-{name[0]}"
                started = time.perf_counter()
                way(spark, folder / "log", lake)
                if number:
                    seconds[name].append(time.perf_counter() - started)
                shutil.rmtree(lake)
        ratios = [theirs / ours for ours, theirs in zip(*seconds.values(), strict=True)]
        for name, taken in seconds.items():
            middle = statistics.median(taken)
            print(f"{name}: {middle:.1f} s, {size_bytes / 1e6 / middle:,.0f} MB/s (median of {rounds})")
        print(f"ratio, round by round: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
