"""Catch-up over HA: logtwin and a real 5.5.0 slave take turns to catch up with the log of a real RocketMQ 5.5.0 master.

The log, 1 KB bodies in segment files of 256 MiB, is written beforehand; the master recovers from it, and the
measurement begins once all of it is in its consume queues. Each contestant is alone with the master and starts with
nothing. Both speeds are in bytes/s, from the first bytes that the contestant has, and so without its start, to the
last:

* the slave's speed comes from asking it where its log ends. A store without a record would ask a master only for its
  last segment file, so the slave's store has the first record. It builds consume queues and indexes as a slave does, in
  files of RocketMQ's default sizes, and flushes asynchronously, as by default;
* logtwin's speed comes from the times of the commits in the table `log`, from the first one on: the bytes of the later
  commits. It runs with default settings on two cores of one Spark session, as the slave of a master for which producers
  may wait, so with one connection at a time. Rows of `log` are records of the same size, except for one blank a file.

The details have the time that each took from its start. logtwin's is without Spark's own start, which is a separate
detail; the slave's includes the seconds that it waits, first for the name server and then to report to the master.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from bench.contest import Figure, Goal, Settings, by_turns
from bench.contestants import config_of, replicate, steady_records_per_s
from bench.payloads import FILE_BYTES, LOG_ID, rows, write_log
from bench.peers import ON_CORES, plain_session
from pipeline.job.replicate import Job
from sinks.tables import LOG
from sources.offsets import Offset
from sources.rocketmq.format.layout import HEAD
from tests.patience import wait_until
from tests.peers.cluster import knows
from tests.peers.rocketmq import Broker
from tests.peers.rocketmq_process import NameServer
from tests.peers.wire import Connection

VERSION = "5.5.0"
BODY_BYTES = 1024
MESSAGES = 3_200_000  # 4 GB
BATCH_BYTES = 1024 * 1024 * 1024  # logtwin's default; a shorter log has smaller batches, so that there are several
LEFT_OUT = 1
GOAL = Goal(least=1.0)
LOOK_EVERY_S = 0.02
Lines = dict[str, str | int]
FILE_SIZES: Lines = {  # the log's as it is written here; the others are RocketMQ's defaults
    "mappedFileSizeCommitLog": FILE_BYTES,
    "mappedFileSizeConsumeQueue": 300_000 * 20,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}
REPORT_AFTER_MS = 1000  # a slave waits so long before its first report, by default 5 s; no speed here includes it


def measure(settings: Settings) -> Iterator[Figure]:
    messages = settings.scaled(MESSAGES, least=20_000)
    with NameServer(VERSION, settings.folder / "names") as names:
        master = Broker(VERSION, settings.folder / "master", {**FILE_SIZES, "namesrvAddr": names.address})
        end = write_log(master.commitlog, BODY_BYTES, messages)
        records = rows(master.commitlog, messages)
        started = time.perf_counter()
        with master:
            await_ready(master, names, end)
            print(f"the master has {end:,} bytes and took {time.perf_counter() - started:.0f} s over them", flush=True)
            started = time.perf_counter()
            with plain_session(settings.folder, ON_CORES) as spark:
                session_s = time.perf_counter() - started
                contest = _Contest(spark, settings, names, master, end, records)
                rounds = by_turns(settings.rounds, contest.logtwin, contest.slave)
    shutil.rmtree(master.home)
    shutil.rmtree(names.home)
    yield Figure(
        work="catch-up over HA, 1 KB",
        ours="HA → log, queryable",
        against=f"a real {VERSION} slave",
        unit="bytes/s",
        rounds=rounds,
        goal=GOAL,
        details={
            "log_bytes": end,
            "records": records,
            "ours_bytes_per_s": statistics.median(one.ours for one in rounds),
            "slave_bytes_per_s": statistics.median(one.against for one in rounds),
            "ours_from_start_s": contest.logtwin_s,
            "ours_steps_s": contest.steps_s,
            "spark_session_start_s": session_s,
            "slave_from_start_s": contest.slave_s,
        },
    )


def await_ready(master: Broker, names: NameServer, end: Offset) -> None:
    """Wait until a slave can find `master`, and it has nothing left to do. Raises SystemExit if it lacks the log."""
    wait_until(lambda: knows(names, master), "the master at the name server")
    with Connection(master.port) as connection:
        wait_until(lambda: connection.undispatched_bytes() == 0, "all of the log in consume queues", look_every_s=0.2)
        bounds = connection.log_bounds()
    if (bounds.start, bounds.end) != (0, end):
        raise SystemExit(f"the master has {bounds}, not [0, {end})")


@dataclass
class _Contest:
    """The two contestants. Each takes the number of a round, returns bytes/s, and records its time from its start."""

    spark: SparkSession
    settings: Settings
    names: NameServer
    master: Broker
    end: Offset
    records: int
    logtwin_s: list[float] = field(default_factory=list)
    slave_s: list[float] = field(default_factory=list)
    steps_s: dict[str, float] = field(default_factory=dict)  # the time of each step in logtwin's last round

    def logtwin(self, number: int) -> float:
        started = time.perf_counter()
        speed, job = caught_up(self.spark, self.settings, f"lake-{number}", self.master, self.records, self.end)
        self.logtwin_s.append(time.perf_counter() - started)
        (done,) = job.progress()
        self.steps_s = {step.value: spent_s for step, spent_s in done.stage_s.items()} | {"batches": done.batches}
        _say(number, "logtwin", speed, self.logtwin_s[-1])
        return speed

    def slave(self, number: int) -> float:
        home = self.settings.folder / f"slave-{number}"
        role: Lines = {"brokerRole": "SLAVE", "brokerId": 1, "haSendHeartbeatInterval": REPORT_AFTER_MS}
        slave = Broker(VERSION, home, {**FILE_SIZES, "namesrvAddr": self.names.address, **role})
        first_end = _seed(slave, self.master)
        started = time.perf_counter()
        with slave:
            speed = _catch_up_bytes_per_s(slave, first_end, self.end)
            self.slave_s.append(time.perf_counter() - started)
        shutil.rmtree(home)
        _say(number, "the slave", speed, self.slave_s[-1])
        return speed


def caught_up(
    spark: SparkSession, settings: Settings, name: str, master: Broker, records: int, end: Offset
) -> tuple[float, Job]:
    """Replicate all that `master` has, and delete it again; the bytes/s after the first commit, and the job."""
    lake = settings.folder / name
    addresses = {"master": f"127.0.0.1:{master.ha_port}", "remoting": f"127.0.0.1:{master.port}"}
    log = {"id": str(LOG_ID), **addresses, "max_bytes_per_trigger": settings.scaled(BATCH_BYTES)}
    job = replicate(spark, config_of(lake, logs=[log]))
    speed = steady_records_per_s(Path(LOG.path(str(lake))), records, left_out=LEFT_OUT) * end / records
    shutil.rmtree(lake)
    return speed, job


def _seed(slave: Broker, master: Broker) -> Offset:
    """Make the first record of the master's log the slave's whole store. Returns where the record ends."""
    with min(master.commitlog.iterdir()).open("rb") as log:
        size, _ = HEAD.unpack(log.read(HEAD.size))
        log.seek(0)
        record = log.read(size)
    slave.commitlog.mkdir(parents=True)
    with (slave.commitlog / f"{0:020d}").open("wb") as file:
        file.write(record)
        file.truncate(FILE_BYTES)
    return Offset(size)


def _catch_up_bytes_per_s(slave: Broker, first_end: Offset, end: Offset) -> float:
    """The slave's bytes/s, from the first look that finds more than `first_end` to the first one that finds all."""
    with Connection(slave.port) as connection:

        def reached(at_least: int) -> tuple[float, Offset]:
            found = [first_end]

            def holds() -> bool:
                found[0] = connection.log_bounds().end
                return found[0] >= at_least

            wait_until(holds, lambda: f"{at_least} in the slave's log: {found[0]}", look_every_s=LOOK_EVERY_S)
            return time.perf_counter(), found[0]

        began, had = reached(first_end + 1)
        ended, _ = reached(end)
    if had == end:
        raise SystemExit("the slave had all of the log when it was looked at first: it is too short")
    return (end - had) / (ended - began)


def _say(number: int, who: str, speed: float, took_s: float) -> None:
    print(f"round {number + 1}, {who}: {speed / 1e6:,.0f} MB/s, {took_s:.1f} s from its start", flush=True)
