"""A warehouse on S3 against one on the local disk: catching up with 1 KB messages, and freshness.

The S3 server is logtwin's own for tests (moto, `pipeline.demo.s3_server`), a process on the same two cores; the
session, the log and the broker are the same for both. There are two figures:

* **Catch-up** by path, as in `bench.catch_up`: the steady state by the times in the table's Delta log. The server's own
  cost is subtracted from the time of the turn on S3: the time to put the files of the local turn's steady commits into
  the same server by plain HTTP, each in one request, over as many connections as there are tasks, with nothing else
  running. The details have the ratio with nothing subtracted, and with the processor time that the server really used
  meanwhile, spread over the cores, which is the least that it can have cost.
* **Freshness** over HA from a real broker, as in `bench.freshness`, with the job's defaults. A row is visible when the
  driver has the store's answer to its commit, on S3 and on the disk. The goal is the disk's p50 plus 0.3 s.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.breakdown import Breakdown
from bench.catch_up import LOG_BATCHES, SIZES, Log
from bench.contest import Figure, Goal, Round, Settings, by_turns, percentile, warmed_by_turns
from bench.contestants import Added, commits, config_of, steady_records_per_s
from bench.freshness import (
    AFTER_S,
    LARGE_FILES,
    MEASURED_S,
    ROCKETMQ_VERSION,
    TOPIC,
    WARM_UP_S,
    Course,
)
from bench.many_live import running
from bench.payloads import LOG_ID, rows
from bench.peers import CORES, ON_CORES, plain_session
from bench.steady_load import RATE_PER_S, sent, steady_load
from pipeline.demo.s3_server import S3Server, running_server
from sinks.batch.result import BatchStep
from sinks.storage.place import open_folder, placed
from sinks.storage.settings import use
from sinks.tables import LOG
from sources.registry import open_log
from tests.objectstore.server import PlainClient, at
from tests.peers.rocketmq import Broker

LEFT_OUT = 1  # batches
CATCH_UP_GOAL = Goal(least=0.8)
ALLOWANCE_MS = 300
FRESHNESS_GOAL = Goal(most=1.0)
_PATIENCE_S = 20.0


def measure(settings: Settings) -> Iterator[Figure]:
    with running_server(folder=settings.folder / "s3") as server:
        use(at(server.endpoint, patience_s=_PATIENCE_S))
        places = Places(f"s3a://{server.bucket}/lake", str(settings.folder / "lake"))
        with plain_session(settings.folder, ON_CORES, placed(places.s3)) as spark:
            yield CatchUp(spark, settings, server, places).figure()
            yield Fresh(spark, settings, places).figure()


@dataclass(frozen=True, slots=True)
class Places:
    """The two warehouses, each empty at the start of a turn."""

    s3: str
    disk: str


def _empty(lake: str) -> None:
    filesystem, folder = open_folder(lake)
    filesystem.delete_dir(folder)


class CatchUp:
    """The catch-up: rates of turns, and times of plain uploads of the same files, by round; round -1 does not count."""

    def __init__(self, spark: SparkSession, settings: Settings, server: S3Server, places: Places) -> None:
        self._spark = spark
        self._settings = settings
        self._server = server
        self._places = places
        self._log = Log.written(settings, SIZES[0])
        self._on_s3 = Breakdown(left_out=LEFT_OUT, end_left_out=0)
        self._on_disk = Breakdown(left_out=LEFT_OUT, end_left_out=0)
        self._uploads: dict[int, _Uploads] = {}
        self._served_s: list[float] = []  # the server's processor time in each turn on S3

    def figure(self) -> Figure:
        raw = warmed_by_turns(self._settings.rounds, self._s3, self._disk)
        self._served_s = self._served_s[-len(raw) :]
        shutil.rmtree(self._log.folder)
        uploads = [self._uploads[number] for number in range(len(raw))]
        records = self._log.batch_records * (LOG_BATCHES - LEFT_OUT)
        rounds = tuple(
            Round(records / (records / one.ours - upload.wall_s), one.against)
            for one, upload in zip(raw, uploads, strict=True)
        )
        return Figure(
            work="catch-up into S3, messages of 1 KB, the server's own cost taken out",
            ours="RocketMQ log by path → log on S3",
            against="the same, on the local disk",
            unit="records/s",
            rounds=rounds,
            goal=CATCH_UP_GOAL,
            details=self._details(raw, uploads),
        )

    def _details(self, raw: tuple[Round, ...], uploads: list[_Uploads]) -> dict[str, Any]:
        return {
            "messages in the log": self._log.records,
            "messages in a batch": self._log.batch_records,
            "batches left out": LEFT_OUT,
            "on S3 with nothing taken out, records/s": [round(one.ours) for one in raw],
            "ratio with nothing taken out": [round(one.ratio, 2) for one in raw],
            "plain uploads of the steady batches' files, s": [round(one.wall_s, 2) for one in uploads],
            "of it the server's processor time, s": [round(one.server_s, 2) for one in uploads],
            "the server's processor time in a turn on S3, s": [round(one, 2) for one in self._served_s],
            "ratio with that taken out, over the cores": [
                round(self._least_ratio(*one), 2) for one in zip(raw, self._served_s, strict=True)
            ],
            "uploaded, MB": round(uploads[-1].size_bytes / 1e6),
            "files": uploads[-1].files,
            "connections": CORES,
            "on S3": self._on_s3.details(),
            "on disk": self._on_disk.details(),
        }

    def _least_ratio(self, one: Round, served_s: float) -> float:
        """A round's ratio, with the server's processor time in the turn on S3 subtracted, evenly over all batches."""
        seconds = self._log.records / one.ours - served_s / CORES
        return self._log.records / seconds / one.against

    def _s3(self, number: int) -> float:
        before_s = _processor_s(self._server)
        rate = self._turn(number, self._places.s3, self._on_s3)
        self._served_s.append(_processor_s(self._server) - before_s)
        return rate

    def _disk(self, number: int) -> float:
        rate = self._turn(number, self._places.disk, self._on_disk, is_kept=True)
        table = LOG.path(self._places.disk)
        self._uploads[number] = _uploaded(self._server, Path(table), commits(table)[LEFT_OUT:])
        print(f"plain uploads: {self._uploads[number]}", flush=True)
        _empty(self._places.disk)
        return rate

    def _turn(self, number: int, lake: str, breakdown: Breakdown, *, is_kept: bool = False) -> float:
        os.sync()  # so that writes of the other turn do not count
        log = {"id": str(LOG_ID), "path": str(self._log.folder), "max_bytes_per_trigger": self._log.batch_bytes}
        breakdown.replicate(self._spark, config_of(lake, logs=[log]))
        records = rows(self._log.folder, self._log.records)
        rate = steady_records_per_s(LOG.path(lake), records, left_out=LEFT_OUT)
        print(f"round {number + 1}: {placed(lake).scheme or 'disk'} {rate:,.0f} records/s", flush=True)
        if not is_kept:
            _empty(lake)
        return rate


@dataclass(frozen=True, slots=True)
class _Uploads:
    """Uploads of files by plain HTTP: `wall_s` in all, `server_s` of the server's processor time."""

    files: int
    size_bytes: int
    wall_s: float
    server_s: float


def _uploaded(server: S3Server, table: Path, added: list[Added]) -> _Uploads:
    """Upload the files of `added` by plain HTTP, measure that, and delete them again."""
    paths = [table / name for one in added for name in one.files]
    client = PlainClient.of(server)
    os.sync()
    before_s, since = _processor_s(server), time.monotonic()
    with ThreadPoolExecutor(CORES) as pool:
        statuses = list(pool.map(lambda path: client("PUT", f"plain/{path.name}", path.read_bytes()).status, paths))
    wall_s, server_s = time.monotonic() - since, _processor_s(server) - before_s
    if set(statuses) != {200}:
        raise SystemExit(f"plain uploads: the server says {set(statuses)}")
    for path in paths:
        client("DELETE", f"plain/{path.name}")
    return _Uploads(len(paths), sum(path.stat().st_size for path in paths), wall_s, server_s)


def _processor_s(server: S3Server) -> float:
    times = psutil.Process(server.pid).cpu_times()
    return float(times.user + times.system)


@dataclass
class _Turn:
    """One turn: when each commit of the job was answered, in ms since 1970, the delays of messages, and the steps."""

    visible_ms: list[float] = field(default_factory=list)
    waited_ms: list[float] = field(default_factory=list)
    step_ms: dict[str, float] = field(default_factory=dict)

    def on_step(self, step: BatchStep) -> None:
        if step is BatchStep.COMMIT:
            self.visible_ms.append(time.time() * 1000)


class Fresh:
    """The freshness: the p50 of turns, each with its own broker and table."""

    def __init__(self, spark: SparkSession, settings: Settings, places: Places) -> None:
        self._spark = spark
        self._settings = settings
        self._places = places
        self._course = Course(settings.scaled(WARM_UP_S, least=3), settings.scaled(MEASURED_S, least=4))
        self._turns: dict[str, list[_Turn]] = {places.s3: [], places.disk: []}

    def figure(self) -> Figure:
        places = self._places
        rounds = by_turns(self._settings.rounds, lambda _: self._p50_ms(places.s3), lambda _: self._p50_ms(places.disk))
        return Figure(
            work=f"freshness p50 on S3, {RATE_PER_S:,} messages/s",
            ours="RocketMQ over HA → log on S3",
            against=f"the same, on the local disk, and {ALLOWANCE_MS} ms",
            unit="ms",
            rounds=tuple(Round(one.ours, one.against + ALLOWANCE_MS) for one in rounds),
            goal=FRESHNESS_GOAL,
            details={
                "warm_up_s": self._course.warm_up_s,
                "measured_s": self._course.measured_s,
                "RocketMQ": ROCKETMQ_VERSION,
                "on S3": self._found(places.s3),
                "on disk": self._found(places.disk),
            },
        )

    def _found(self, lake: str) -> dict[str, Any]:
        turns = self._turns[lake]
        return {
            "p50_ms": [round(percentile(one.waited_ms, 0.5)) for one in turns],
            "p99_ms": [round(percentile(one.waited_ms, 0.99)) for one in turns],
            "commits": [len(one.visible_ms) for one in turns],
            "step_ms": turns[-1].step_ms,
        }

    def _p50_ms(self, lake: str) -> float:
        folder = self._settings.folder / "broker"
        turn = _Turn()
        with Broker(ROCKETMQ_VERSION, folder, LARGE_FILES) as broker:
            remoting = f"127.0.0.1:{broker.port}"
            log = {"id": "rocketmq/bench", "master": f"127.0.0.1:{broker.ha_port}", "remoting": remoting}
            config = config_of(lake, metadata=True, logs=[log])
            with (
                steady_load("rocketmq", remoting, TOPIC, self._course.seconds) as load,
                running(self._spark, config, turn.on_step) as run,
            ):
                _await_end(load, self._course)
                run.until_at([open_log(config.logs[0]).bounds().end])
                progress = run.progress()[0]
        turn.step_ms = {step.value: round(s / progress.commits * 1000, 1) for step, s in progress.stage_s.items()}
        turn.waited_ms = _waited_ms(lake, turn.visible_ms, self._course, sent(load))
        self._turns[lake].append(turn)
        _empty(lake)
        shutil.rmtree(folder)
        median = statistics.median(turn.waited_ms)
        print(f"freshness on {placed(lake).scheme or 'disk'}: p50 {median:,.0f} ms, {turn.step_ms}", flush=True)
        return percentile(turn.waited_ms, 0.5)


def _await_end(load: subprocess.Popen[str], course: Course) -> None:
    load.wait(course.seconds + AFTER_S + _PATIENCE_S)


def _waited_ms(lake: str, visible_ms: list[float], course: Course, count: int) -> list[float]:
    """The delays of the messages of the measured time. Raises SystemExit unless all `count` messages are there once."""
    filesystem, folder = open_folder(LOG.path(lake))
    stored, offsets, seen = [], [], []
    for added, at_ms in zip(commits(LOG.path(lake)), visible_ms, strict=True):
        for name in added.files:
            read = pq.read_table(
                f"{folder}/{name}", columns=["topic", "offset", "store_timestamp"], filesystem=filesystem
            )
            read = read.filter(pc.equal(read["topic"], TOPIC))
            ms = pc.cast(read["store_timestamp"], pa.timestamp("ms", read["store_timestamp"].type.tz), safe=False)
            stored += pc.cast(ms, pa.int64()).to_pylist()
            offsets += read["offset"].to_pylist()
            seen += [at_ms] * len(read)
    if not len(offsets) == len(set(offsets)) == count:
        raise SystemExit(f"{lake} has {len(offsets):,} rows, not {count:,}, each once")
    begin_ms = min(stored) + course.warm_up_s * 1000
    end_ms = begin_ms + course.measured_s * 1000
    return [at_ms - one for one, at_ms in zip(stored, seen, strict=True) if begin_ms <= one < end_ms]
