"""``python -m bench.quick``: check within minutes whether one of the three main ratios has become much worse.

    catch-up   1 KB messages by path, against Spark's Kafka source → Delta with the same bodies
    Kafka      our Kafka path, against the same
    decode     commit-log bytes → Arrow, against decoding record by record: CPU time, one thread

The sizes are small and fixed. A ratio is compared with the one recorded at the same sizes (``--record``, in
``results/quick.json``), and not with a goal. A round brings the same records into Delta in all three ways, one right
after the other; their steady state is compared. `guard.py` says how many rounds there are, and when a ratio has fallen.
The exit code is 1 if one has, or none is recorded.
"""

from __future__ import annotations

import gc
import json
import shutil
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from pyspark.sql import SparkSession

from bench import columns, payloads
from bench.breakdown import Breakdown
from bench.contestants import config_of
from bench.decoding import batches
from bench.guard import ALLOWED, fallen, settled
from bench.machine import commit, machine
from bench.peers import lone_broker, running_session
from bench.results import FOLDER
from bench.scratch import scratch_folder
from pipeline.sql.output import replacing

RECORDED = FOLDER / "quick.json"

BODY_BYTES = 1024
RECORDS = 180_000
BATCH_RECORDS = 30_000
LEFT_OUT, END_LEFT_OUT = 2, 1  # batches
PARTITIONS = 6
DECODED_RECORDS = 20_000
DECODES_A_TURN = 8  # of ours, which takes about as long then as the other does once
SIZES = {
    "records": RECORDS,
    "batch_records": BATCH_RECORDS,
    "left_out": [LEFT_OUT, END_LEFT_OUT],
    "decoded_records": DECODED_RECORDS,
}
NAMES = ("catch-up", "Kafka", "decode")
LAKE_ROUNDS, DECODE_ROUNDS = (3, 7), (7, 25)  # at least, and at most where they scatter

_TOPIC = "quick"


def main(record: Annotated[bool, typer.Option("--record", help="what is measured now is what counts")] = False) -> None:
    """Measure the three main ratios, and fail where one is a quarter below what is recorded."""
    began_s = time.monotonic()
    recorded = {} if record else read_recorded(RECORDED)
    with Looks.ready() as look:
        if record:
            _record(RECORDED, _told(look(NAMES), recorded))
        low = [] if record else fallen(lambda names: _told(look(names), recorded), NAMES, recorded)
    print(f"in {time.monotonic() - began_s:.0f} s", flush=True)
    if low:
        raise SystemExit(f"twice below {ALLOWED:.0%} of the recorded ratio: {', '.join(low)}")


def _told(ratios: Mapping[str, float], recorded: Mapping[str, float]) -> Mapping[str, float]:
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f}" + (f" (recorded: {recorded[name]:.2f})" if name in recorded else ""), flush=True)
    return ratios


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


class Looks:
    """Measures the ratios that it is asked for. A session and a broker are started when a ratio first needs them."""

    def __init__(self, running: ExitStack) -> None:
        self._running = running
        self._lake: tuple[SparkSession, _Inputs] | None = None

    @classmethod
    @contextmanager
    def ready(cls) -> Iterator[Looks]:
        with ExitStack() as running:
            yield cls(running)

    def __call__(self, names: Collection[str]) -> dict[str, float]:
        found: dict[str, float] = {}
        if "decode" in names:  # first: later the process has threads of Spark's
            found |= decode_ratio()
        if set(names) - {"decode"}:
            found |= self._lake_ratios()
        return {name: found[name] for name in names}

    def _lake_ratios(self) -> dict[str, float]:
        if self._lake is None:
            folder = self._running.enter_context(scratch_folder())
            inputs = self._running.enter_context(_inputs(folder))
            self._lake = self._running.enter_context(running_session(folder)), inputs
        spark, inputs = self._lake
        least, most = LAKE_ROUNDS
        return settled(lambda number: _round(number, spark, inputs), least=least, most=most)


def decode_ratio() -> dict[str, float]:
    """By turns: ours, the other."""
    log = columns.make_log(DECODED_RECORDS, BODY_BYTES)

    def one(_: int) -> dict[str, float]:
        ours_s = _cpu_s(_decoded, log, DECODES_A_TURN)
        return {"decode": _cpu_s(columns.decode_records, log, 1) / ours_s}

    one(-1)  # warm
    least, most = DECODE_ROUNDS
    return settled(one, least=least, most=most)


def _decoded(log: bytes) -> None:
    deque(batches(log), maxlen=0)


def _cpu_s(decoder: Callable[[bytes], None], log: bytes, times: int) -> float:
    """Of one decoding of the log, on average; Python's collector waits."""
    gc.collect()
    gc.disable()
    try:
        begun_s = time.process_time()
        for _ in range(times):
            decoder(log)
        return (time.process_time() - begun_s) / times
    finally:
        gc.enable()


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The same messages as a commit log that ends at `log_end`, and in the topic of a Kafka broker.

    `lake` is for the table, and empty before each turn.
    """

    lake: Path
    log: Path
    log_end: int
    server: str


@contextmanager
def _inputs(folder: Path) -> Iterator[_Inputs]:
    log = folder / "log"
    log_end = payloads.write_log(log, BODY_BYTES, RECORDS)
    with lone_broker(folder) as server:
        payloads.fill_topic(server, _TOPIC, log, PARTITIONS)
        yield _Inputs(folder / "lake", log, log_end, server)


def _round(number: int, spark: SparkSession, inputs: _Inputs) -> dict[str, float]:
    """The ratios to Spark's own way; the first one in a round is the last in the next."""
    ways = _ways(Breakdown(spark, left_out=LEFT_OUT, end_left_out=END_LEFT_OUT), inputs)
    rates = {}
    for name in list(ways)[:: -1 if number % 2 else 1]:
        rates[name] = ways[name]()
        shutil.rmtree(inputs.lake)
    print(", ".join(f"{name} {rates[name]:,.0f} records/s" for name in ways), flush=True)
    return {name: rates[name] / rates["Spark"] for name in ("catch-up", "Kafka")}


def _ways(run: Breakdown, inputs: _Inputs) -> dict[str, Callable[[], float]]:
    """The three ways into Delta; each returns its steady records/s."""
    batch_bytes = inputs.log_end * BATCH_RECORDS // RECORDS
    log = {"id": str(payloads.LOG_ID), "path": str(inputs.log), "max_bytes_per_trigger": batch_bytes}
    topic = {"id": f"kafka/bench/{_TOPIC}", "servers": inputs.server, "max_offsets_per_trigger": BATCH_RECORDS}
    lake, rows = inputs.lake, payloads.rows(inputs.log, RECORDS)
    return {
        "catch-up": lambda: run.ours(config_of(lake, logs=[log]), rows),
        "Kafka": lambda: run.ours(config_of(lake, topics=[topic]), RECORDS),
        "Spark": lambda: run.spark_kafka(inputs.server, _TOPIC, lake, RECORDS, batch_records=BATCH_RECORDS),
    }


if __name__ == "__main__":
    typer.run(main)
