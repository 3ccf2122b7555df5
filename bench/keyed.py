"""A step of a keyed table of millions of rows, against MERGE: 10,000 changes, which is ten seconds at 1,000 a second.

A real broker holds JSON of about 100 bytes. A topic of KEYS messages, one a key, makes the table; then each round sends
the changes: of any keys (`uniform`), of those that changed last (`skewed`), or of new ones (`growing`). They are
replicated, and the step that brings them is measured, from the question for work to the commit. MERGE, in the same
session of two cores, brings the same changes, parsed beforehand, into a Delta table of the same rows.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import confluent_kafka as librdkafka
import numpy as np
from pyspark.sql import SparkSession

from bench.contest import Figure, Goal, Settings, by_turns
from bench.contestants import config_of, replicate
from bench.payloads import create_topic
from bench.peers import CORES, lone_broker, running_session
from pipeline.demo.kafka_broker import VERSION
from sinks.typed.definition import Definition
from sinks.typed.step.follower import TypedFollower
from tests.resident import held_mib

KEYS = 10_000_000
CHANGES = 10_000
GOAL = Goal(most=0.33)
KINDS = ("uniform", "skewed", "growing")
TOPIC = "stock"
SCHEMA = {"id": "bigint", "customer": "bigint", "status": "string", "amount": "decimal(12,2)", "note": "string"}
_DDL = ", ".join(f"{name} {kind}" for name, kind in SCHEMA.items())
_SAMPLE_S = 0.2


def measure(settings: Settings) -> Iterator[Figure]:
    keys = settings.scaled(KEYS, least=20_000)
    with running_session(settings.folder) as spark, lone_broker(settings.folder) as server:
        create_topic(server, TOPIC, 1)
        contest = _Contest(spark, server, settings.folder, keys)
        contest.begin()
        for kind in KINDS:
            contest.steps.clear()
            rounds = by_turns(settings.rounds, partial(contest.stepped, kind), partial(contest.merged, kind))
            contest.check()
            yield Figure(
                work=f"keyed table of {keys:,} rows, {CHANGES:,} changes, {kind}",
                ours="a step of the typed table",
                against="MERGE",
                unit="s",
                rounds=rounds,
                goal=GOAL,
                details={
                    "bytes written, of a byte of changes": statistics.median(one[0] for one in contest.steps),
                    "MiB of the largest worker": max(one[1] for one in contest.steps),
                    "cores": CORES, "broker": VERSION,
                },
            )  # fmt: skip


class _Contest:
    def __init__(self, spark: SparkSession, server: str, folder: Path, keys: int) -> None:
        self._spark, self._server, self._keys = spark, server, keys
        self._lake, self._merged = folder / "lake", folder / "merged"
        self._random = np.random.default_rng(7)
        self._follower = TypedFollower(
            spark,
            str(self._lake),
            Definition(name=TOPIC, kafka_topics=(f"kafka/b/{TOPIC}",), schema=SCHEMA, key=("id",)),
        )
        self._changes: Path = folder / "changes.json"
        self._sent: tuple[str, int] | None = None
        self.steps: list[tuple[float, float]] = []
        """Of each step the bytes written for a byte of the changes, and the MiB of the largest worker."""

    def begin(self) -> None:
        """Make both tables."""
        for start in range(0, self._keys, 1_000_000):
            self._send(np.arange(start, min(start + 1_000_000, self._keys)))
        self._steps()
        rows = self._spark.read.format("delta").load(str(self._table)).selectExpr(*SCHEMA)
        rows.write.format("delta").save(str(self._merged))
        print(f"{self._keys:,} rows", flush=True)

    @property
    def _table(self) -> Path:
        return self._lake / "tables" / TOPIC

    def _keys_of(self, kind: str) -> np.ndarray:
        """Keys that change, each once, as MERGE needs it."""
        if kind == "growing":
            self._keys += CHANGES
            return np.arange(self._keys - CHANGES, self._keys)
        if kind == "skewed":
            back = self._random.exponential(self._keys / 100, CHANGES).astype(int)
            return self._keys - 1 - np.unique(np.minimum(back, self._keys - 1))
        return self._random.permutation(np.unique(self._random.integers(0, self._keys, CHANGES)))

    def _send(self, keys: np.ndarray) -> list[bytes]:
        amounts, notes = self._random.integers(0, 10**8, len(keys)), self._random.integers(0, 2**62, len(keys))
        bodies = [
            b'{"id":%d,"customer":%d,"status":"paid","amount":%d.%02d,"note":"%016x"}'
            % (key, key % 100_000, amount // 100, amount % 100, note)
            for key, amount, note in zip(keys.tolist(), amounts.tolist(), notes.tolist(), strict=True)
        ]
        producer = librdkafka.Producer({"bootstrap.servers": self._server, "linger.ms": 20})
        for body in bodies:
            while True:
                try:
                    producer.produce(TOPIC, body)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()
        replicate(self._spark, config_of(self._lake, topics=[{"id": f"kafka/b/{TOPIC}", "servers": self._server}]))
        return bodies

    def stepped(self, kind: str, number: int) -> float:
        changed_bytes = self._changed(kind, number)
        before = {path.name for path in self._table.glob("*.parquet")}
        with _largest_worker() as largest:
            took_s = _timed(self._steps)
        written = sum(path.stat().st_size for path in self._table.glob("*.parquet") if path.name not in before)
        self.steps.append((written / changed_bytes, largest[0]))
        print(f"step, {kind}: {took_s:.2f} s, {written / changed_bytes:.0f} x, {largest[0]:.0f} MiB", flush=True)
        return took_s

    def merged(self, kind: str, number: int) -> float:
        self._changed(kind, number)
        self._spark.read.schema(_DDL).json(str(self._changes)).createOrReplaceTempView("changes")
        took_s = _timed(
            lambda: self._spark.sql(
                f"MERGE INTO delta.`{self._merged}` t USING changes c ON t.id = c.id "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
        )
        print(f"MERGE, {kind}: {took_s:.2f} s", flush=True)
        return took_s

    def check(self) -> None:
        """Raise SystemExit unless both tables have the same rows."""
        ours, theirs = (self._spark.read.format("delta").load(str(one)) for one in (self._table, self._merged))
        said = ["count(*)", f"sum(xxhash64({', '.join(SCHEMA)}) % 1000000)"]
        sums = [one.selectExpr(*said).first() for one in (ours, theirs)]
        if sums[0] != sums[1]:
            raise SystemExit(f"the typed table has {sums[0]}, MERGE's {sums[1]}")

    def _changed(self, kind: str, number: int) -> int:
        """Send and replicate the changes of a round, unless that is done. Returns their bytes."""
        if self._sent != (kind, number):
            self._sent = (kind, number)
            self._changes.write_bytes(b"\n".join(self._send(self._keys_of(kind))))
        return self._changes.stat().st_size

    def _steps(self) -> None:
        while self._follower.step() is not None:
            pass


def _timed(work: Callable[[], object]) -> float:
    began_s = time.monotonic()
    work()
    return time.monotonic() - began_s


@contextmanager
def _largest_worker() -> Iterator[list[float]]:
    """The most that one Python process below this one held meanwhile, in MiB."""
    found, done = [0.0], threading.Event()

    def look() -> None:
        while not done.wait(_SAMPLE_S):
            held = [mib for name, mib in held_mib(os.getpid()) if name.startswith("python")]
            found[0] = max(found[0], *held[1:], 0.0)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()
