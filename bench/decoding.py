"""Decoding only: commit-log bytes into Arrow, against RocketMQ's own MessageDecoder 5.5.0 into its message objects.

Both loop over the same bytes in memory, on the same core, to which either process is bound (with the JVM's compiler and
collector), after a warm-up that does not count; one waits while the other is measured. Both check the CRC of each body,
and produce each body and the properties. Ours decodes 16 MiB at once, as tasks do, into all columns. Java's, called
with readBody and checkCRC (`java/Decode.java`), copies the body, and builds the map of properties and the message id;
only the hosts stay addresses, whose text it would build on request. Neither reads a file meanwhile.
The goal is for bodies of 1 KB; the other sizes are details.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from bench.contest import Figure, Goal, Round, Settings, by_turns
from bench.payloads import write_log
from pipeline.spark.jars import java, resolve
from pipeline.system.processes import child_process
from sources.offsets import Offset
from sources.rocketmq.columns import codec

VERSION = "5.5.0"
PROGRAM = Path(__file__).parent / "java" / "Decode.java"
CHUNK_BYTES = 16 * 1024 * 1024
SIZES = {1024: 120_000, 128: 400_000, 65_536: 2000}
"""Numbers of messages by body bytes: more bytes than caches hold, and less than a segment file."""
WITH_GOAL = 1024
GOAL = Goal(least=0.5)
MEASURE_S = 1.0
WARM_UP_S = 5.0

Found = tuple[int, int, int]
"""The numbers of records, of bytes of their bodies, and of properties."""


def measure(settings: Settings) -> Iterator[Figure]:
    with _bound_to_one_core() as core:
        rounds = {size: _contest(settings, size) for size in SIZES}
    details = {f"bodies of {size} B": _medians(of_size) for size, of_size in rounds.items()}
    yield Figure(
        work="decode alone, 1 KB",
        ours="bytes → Arrow",
        against=f"RocketMQ {VERSION} MessageDecoder",
        unit="records/s",
        rounds=rounds[WITH_GOAL],
        goal=GOAL,
        details={"core": core, **details},
    )


@contextmanager
def _bound_to_one_core() -> Iterator[int]:
    """Bind this thread, and the processes that it starts, to one core."""
    before = os.sched_getaffinity(0)
    core = max(before)
    os.sched_setaffinity(0, {core})
    try:
        yield core
    finally:
        os.sched_setaffinity(0, before)


def _contest(settings: Settings, body_bytes: int) -> tuple[Round, ...]:
    file = _log_file(settings, body_bytes)
    log = file.read_bytes()
    warm_up_s, measure_s = (settings.scale * time_s for time_s in (WARM_UP_S, MEASURE_S))
    with _JavaDecoder.started(file) as theirs:
        if _found(log) != theirs.found:
            raise SystemExit(f"decoded {_found(log)} of {body_bytes} B, RocketMQ {theirs.found}")
        theirs.records_per_s(warm_up_s)
        rounds = by_turns(
            settings.rounds,
            lambda _: _records_per_s(log, theirs.found[0], measure_s),
            lambda _: theirs.records_per_s(measure_s),
        )
    shutil.rmtree(file.parent)
    for number, one in enumerate(rounds, 1):
        print(f"{body_bytes} B, round {number}: {one.ours:,.0f} and {one.against:,.0f} records/s", flush=True)
    return rounds


def _log_file(settings: Settings, body_bytes: int) -> Path:
    """The only segment file of a log, without the space after its last record."""
    folder = settings.folder / f"log-{body_bytes}"
    end = write_log(folder, body_bytes, settings.scaled(SIZES[body_bytes], least=100))
    (file,) = folder.iterdir()
    os.truncate(file, end)
    return file


def batches(log: bytes) -> Iterator[pa.RecordBatch]:
    """As a task decodes it, CHUNK_BYTES at a time."""
    view, at = memoryview(log), 0
    while at < len(log):
        decoded = codec.decode(view[at : at + CHUNK_BYTES], Offset(at), Offset(len(log)))
        yield decoded.records
        at = decoded.end


def _records_per_s(log: bytes, expected: int, least_s: float) -> float:
    """Decode all of the log repeatedly, until `least_s` have passed; records/s."""
    records = passes = 0
    begun = time.perf_counter()
    while time.perf_counter() - begun < least_s:
        records += sum(batch.num_rows for batch in batches(log))
        passes += 1
    took_s = time.perf_counter() - begun
    if records != passes * expected:
        raise SystemExit(f"decoded {records:,} records in {passes} passes, not {expected:,} in each")
    return records / took_s


def _found(log: bytes) -> Found:
    found = [
        (batch.num_rows, _values_size(batch.column("body")), len(batch.column("properties").keys))
        for batch in batches(log)
    ]
    records, body_bytes, properties = (sum(one) for one in zip(*found, strict=True))
    return records, body_bytes, properties


def _values_size(values: pa.BinaryArray) -> int:
    return sum(len(value.as_buffer()) for value in values)


def _medians(rounds: tuple[Round, ...]) -> dict[str, float]:
    return {
        "ours_records_per_s": statistics.median(one.ours for one in rounds),
        "java_records_per_s": statistics.median(one.against for one in rounds),
        "ratio": statistics.median(one.ratio for one in rounds),
    }


class _JavaDecoder:
    """The Java program while it runs; see Decode.java for its input and output."""

    def __init__(self, process: subprocess.Popen[str], said: Path) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("a process without pipes")
        self._asked, self._answers, self._said = process.stdin, process.stdout, said
        records, body_bytes, properties = self._answer()
        self.found: Found = (records, body_bytes, properties)

    @classmethod
    @contextmanager
    def started(cls, file: Path) -> Iterator[_JavaDecoder]:
        classpath = f"{resolve('org.apache.rocketmq', 'rocketmq-broker', VERSION)}/*"
        memory = ("-Xms2g", "-Xmx2g", f"-Duser.home={file.parent}")
        command = [java(), *memory, "-cp", classpath, str(PROGRAM), str(file)]
        with (
            (file.parent / "java.err").open("w") as said,
            child_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True) as process,
        ):
            yield cls(process, Path(said.name))

    def records_per_s(self, least_s: float) -> float:
        print(least_s, file=self._asked, flush=True)
        records, took_ns = self._answer()
        return records / took_ns * 1e9

    def _answer(self) -> list[int]:
        line = self._answers.readline()
        if not line:
            raise SystemExit(f"RocketMQ's decoder has ended. It said:\n{self._said.read_text()[-3000:]}")
        return [int(number) for number in line.split()]
