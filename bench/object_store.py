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
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from bench.breakdown import Breakdown
from bench.catch_up import LOG_BATCHES, SIZES, Log
from bench.contest import Figure, Goal, Round, Settings, by_turns, warmed_by_turns
from bench.contestants import Added, commits, config_of
from bench.freshness import COURSE
from bench.many_live import ROCKETMQ, Live, live, with_logtwin
from bench.payloads import LOG_ID, rows
from bench.peers import CORES, ON_CORES, plain_session
from bench.sender import ROCKETMQ_VERSION
from pipeline.demo.s3_server import S3Server, running_server
from sinks.batch.proof import BatchStep
from sinks.storage.place import open_folder, placed
from sinks.storage.settings import use
from sinks.tables import LOG
from tests.objectstore.server import PlainClient, at

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
            yield _freshness(spark, settings, places)


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
        self._on_s3 = Breakdown(spark, left_out=LEFT_OUT, end_left_out=0)
        self._on_disk = Breakdown(spark, left_out=LEFT_OUT, end_left_out=0)
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
        log = {"id": str(LOG_ID), "path": str(self._log.folder), "max_bytes_per_trigger": self._log.batch_bytes}
        rate = breakdown.ours(config_of(lake, logs=[log]), rows(self._log.folder, self._log.records))
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


def _freshness(spark: SparkSession, settings: Settings, places: Places) -> Figure:
    """The p50 of turns, each with its own broker and table."""
    turns: dict[str, list[Live]] = {places.s3: [], places.disk: []}

    def p50_ms(lake: str) -> float:
        answered: list[float] = []

        def on_step(step: BatchStep) -> None:
            if step is BatchStep.COMMIT:
                answered.append(time.time() * 1000)

        way = partial(with_logtwin, on_step=on_step)
        turns[lake].append(live(spark, settings, ROCKETMQ, 1, COURSE, way, lake=lake, answered=answered))
        _empty(lake)
        return turns[lake][-1].p50_ms

    def found(lake: str) -> dict[str, Any]:
        names = ("p50_ms", "p99_ms", "commits", "step_ms")
        return {name: [getattr(one, name) for one in turns[lake]] for name in names}

    rounds = by_turns(settings.rounds, lambda _: p50_ms(places.s3), lambda _: p50_ms(places.disk))
    course = asdict(COURSE.scaled(settings))
    return Figure(
        work=f"freshness p50 on S3, {COURSE.rate_per_s:,} messages/s",
        ours="RocketMQ over HA → log on S3",
        against=f"the same, on the local disk, and {ALLOWANCE_MS} ms",
        unit="ms",
        rounds=tuple(Round(one.ours, one.against + ALLOWANCE_MS) for one in rounds),
        goal=FRESHNESS_GOAL,
        details={**course, "RocketMQ": ROCKETMQ_VERSION, "on S3": found(places.s3), "on disk": found(places.disk)},
    )
