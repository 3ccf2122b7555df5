"""``python -m bench.quick``: check within two minutes whether one of the three main ratios has become much worse.

    catch-up   1 KB messages by path, against Spark's Kafka source → Delta with the same bodies
    Kafka      our Kafka path, against the same
    decode     commit-log bytes → Arrow, against decoding record by record: CPU time, one thread

The sizes are small and fixed. A ratio is compared with the one recorded at the same sizes (``--record``, in
``results/quick.json``), and not with a goal. A round brings the same records into Delta in all three ways, one right
after the other; their steady state is compared, as the median of ROUNDS. The exit code is 1 if a ratio is below ALLOWED
of the recorded one, or none is recorded.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from pyspark.sql import SparkSession

from bench import columns, contestants, payloads
from bench.machine import commit, machine
from bench.peers import lone_broker, running_session
from bench.results import FOLDER
from bench.scratch import scratch_folder
from pipeline.system.atomic_file import replacing
from sinks.tables import KAFKA_LOG, LOG, TableSpec

ALLOWED = 0.75
RECORDED = FOLDER / "quick.json"

BODY_BYTES = 1024
RECORDS = 180_000
BATCH_RECORDS = 30_000
LEFT_OUT, END_LEFT_OUT = 2, 1  # batches
PARTITIONS = 6
DECODED_RECORDS = 20_000
ROUNDS = 3
SIZES = {
    "records": RECORDS,
    "batch_records": BATCH_RECORDS,
    "left_out": [LEFT_OUT, END_LEFT_OUT],
    "decoded_records": DECODED_RECORDS,
    "rounds": ROUNDS,
}

_TOPIC = "quick"


def main(record: Annotated[bool, typer.Option("--record", help="what is measured now is what counts")] = False) -> None:
    """Measure the three main ratios, and fail where one is a quarter below what is recorded."""
    began_s = time.monotonic()
    recorded = {} if record else read_recorded(RECORDED)
    ratios = measured()
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f}" + (f" (recorded: {recorded[name]:.2f})" if name in recorded else ""))
    print(f"in {time.monotonic() - began_s:.0f} s", flush=True)
    if record:
        _record(RECORDED, ratios)
    elif fallen := too_low(ratios, recorded):
        raise SystemExit(f"below {ALLOWED:.0%} of the recorded ratio: {', '.join(fallen)}")


def too_low(ratios: Mapping[str, float], recorded: Mapping[str, float]) -> list[str]:
    """The names of those `ratios` that are below ALLOWED of the `recorded` one, or have none."""
    return [name for name, ratio in ratios.items() if name not in recorded or ratio < ALLOWED * recorded[name]]


def read_recorded(path: Path) -> dict[str, float]:
    """The recorded ratios. Raises SystemExit if there are none, or none at these sizes."""
    given: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if given.get("sizes") != SIZES:
        raise SystemExit(f"{path} has no ratios at these sizes: record them with python -m bench.quick --record")
    return {name: float(ratio) for name, ratio in given["ratios"].items()}


def _record(path: Path, ratios: Mapping[str, float]) -> None:
    date = datetime.now(UTC).date().isoformat()
    given = {"date": date, "commit": commit(), "machine": machine(), "sizes": SIZES, "ratios": ratios}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write((json.dumps(given, indent=2) + "\n").encode())


def measured() -> dict[str, float]:
    decode = decode_ratio()
    with scratch_folder() as folder:
        return {**_lake_ratios(folder), "decode": decode}


def decode_ratio() -> float:
    log = columns.make_log(DECODED_RECORDS, BODY_BYTES)
    _, ours_s = columns.best_seconds(columns.decode_columns, log, ROUNDS)
    _, record_by_record_s = columns.best_seconds(columns.decode_records, log, ROUNDS)
    return record_by_record_s / ours_s


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The same messages as a commit log that ends at `log_end`, and in the topic of a Kafka broker."""

    folder: Path
    log: Path
    log_end: int
    server: str


def _lake_ratios(folder: Path) -> dict[str, float]:
    with _inputs(folder) as inputs, running_session(folder) as spark:
        rounds = [_round(number, spark, inputs) for number in range(ROUNDS)]
    return {name: statistics.median(one[name] / one["Spark"] for one in rounds) for name in ("catch-up", "Kafka")}


@contextmanager
def _inputs(folder: Path) -> Iterator[_Inputs]:
    log = folder / "log"
    log_end = payloads.write_log(log, BODY_BYTES, RECORDS)
    with lone_broker(folder) as server:
        payloads.fill_topic(server, _TOPIC, log, PARTITIONS)
        yield _Inputs(folder, log, log_end, server)


def _round(number: int, spark: SparkSession, inputs: _Inputs) -> dict[str, float]:
    """The records/s of each way; the first one in a round is the last in the next."""
    order = list(WAYS)[:: -1 if number % 2 else 1]
    rates = {name: _records_per_s(name, spark, inputs) for name in order}
    print(", ".join(f"{name} {rates[name]:,.0f} records/s" for name in WAYS), flush=True)
    return rates


def _records_per_s(name: str, spark: SparkSession, inputs: _Inputs) -> float:
    lake = inputs.folder / "lake"
    way, table = WAYS[name]
    way(spark, inputs, lake)
    expected = payloads.rows(inputs.log, RECORDS) if table is LOG else RECORDS
    rate = contestants.steady_records_per_s(
        Path(table.path(str(lake))), expected, left_out=LEFT_OUT, end_left_out=END_LEFT_OUT
    )
    shutil.rmtree(lake)
    return rate


def _by_path(spark: SparkSession, inputs: _Inputs, lake: Path) -> None:
    batch_bytes = inputs.log_end * BATCH_RECORDS // RECORDS
    log = {"id": str(payloads.LOG_ID), "path": str(inputs.log), "max_bytes_per_trigger": batch_bytes}
    contestants.replicate(spark, contestants.config_of(lake, logs=[log]))


def _from_kafka(spark: SparkSession, inputs: _Inputs, lake: Path) -> None:
    topic = {"id": f"kafka/bench/{_TOPIC}", "servers": inputs.server, "max_offsets_per_trigger": BATCH_RECORDS}
    contestants.replicate(spark, contestants.config_of(lake, topics=[topic]))


def _with_spark(spark: SparkSession, inputs: _Inputs, lake: Path) -> None:
    contestants.spark_kafka_replicate(spark, inputs.server, _TOPIC, lake, batch_records=BATCH_RECORDS)


WAYS: dict[str, tuple[Callable[[SparkSession, _Inputs, Path], None], TableSpec]] = {
    "catch-up": (_by_path, LOG),
    "Kafka": (_from_kafka, KAFKA_LOG),
    "Spark": (_with_spark, KAFKA_LOG),
}


if __name__ == "__main__":
    typer.run(main)
