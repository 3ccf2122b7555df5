"""The cost of more logs: one, 64 and a thousand logs in one job, with the same work in all; within ten minutes.

*Catch-up*, by path: the job waits at the end of its logs; then 1 GB appears in them at once, in 1 or 64 equal
parts. It compares records/s from that moment to the last commit, which includes up to a second of waiting for the
trigger. The start of the job is left out, and is in the details. All logs have the same bytes, as hard links, under
different ids.

*Live*, over HA from embedded masters, in one round, because it takes minutes: see `bench.many_live`. It compares the
rate, the freshness of records, the time until all logs have their first commit, and the memory of all processes. The
processor time of an idle job has a fixed bound. A thousand logs have fixed bounds alone; each of their batches has
something of each log. What its bytes take, at the speed of the catch-up of one log, is not counted; nor is Spark's
latestOffset, in which logtwin waits for the next second: whether a commit comes each second is in the details.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.contest import Figure, Goal, Round, Settings
from bench.contestants import commits, config_of
from bench.many_live import EMBEDDED, RATE_PER_S, Course, Live, bound, compared, live, running
from bench.peers import plain_session
from sinks.tables import LOG
from tests.large_log import write_large_log
from tests.resident import MIB

MOST = 64
LEAST = 4
ROUNDS = 3
FILE_BYTES = 16 * MIB
FILES_EACH = 1  # of the backlog, if there are the most logs
CATCH_UP = Goal(least=0.9)
KEPT_UP = Goal(least=0.97)
"""A trigger's worth of records more or less at each end of the window is 1.7 % of it."""
FRESH = Goal(most=1.3)
STARTED = Goal(most=1.5)
HELD = Goal(most=1.5)
IDLE_CORES = 0.15
COURSE = Course(warm_up_s=30, measured_s=45)  # metadata comes first meanwhile
THOUSAND = 1000
THOUSAND_BATCH_MS = 2000
THOUSAND_START_S = 15
THOUSAND_IDLE_CORES = 0.5
_BOOKKEEPING_S = 1.0  # for the bookkeeping of a batch after its commit


def measure(settings: Settings) -> Iterator[Figure]:
    with plain_session(settings.folder, {}) as spark:
        records_per_s = yield from _catch_up(spark, settings)
        taken = {count: live(spark, settings, EMBEDDED, count, COURSE) for count in _counts(settings)}
        yield from _live(taken)
        count = settings.scaled(THOUSAND, least=LEAST)
        taken[count] = live(spark, settings, EMBEDDED, count, COURSE)
        print(*map(_line, taken, taken.values()), sep="\n", flush=True)
        yield from _thousand(taken[count], count, records_per_s)


def _counts(settings: Settings) -> tuple[int, ...]:
    """The numbers of logs: 1 and 64 at full size."""
    return 1, settings.scaled(MOST, least=LEAST)


def _line(count: int, one: Live) -> str:
    idle_cores, held_mib = sum(one.idle_cores.values()), sum(one.held_mib.values())
    return (
        f"{count:>5,} logs: first commit of all {one.start_s:4.1f} s, a batch {_batch_ms(one) / 1000:5.2f} s, "
        f"p99 {one.p99_ms / 1000:5.2f} s, idle {idle_cores:.2f} cores, {held_mib:,} MiB"
    )


def _batch_ms(one: Live) -> float:
    """Without the time in which logtwin waits for the next second. Raises SystemExit if no batch has ended."""
    if not one.batch_ms:
        raise SystemExit(f"many logs: no batch has ended in {one.measured_s} s")
    return one.batch_ms["triggerExecution"] - one.batch_ms["latestOffset"]


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The result of one catch-up. `start_s` is the time from the job's start until every log had its first commit."""

    start_s: float
    records_per_s: float


def _catch_up(spark: SparkSession, settings: Settings) -> Generator[Figure, None, float]:
    """Returns the records/s of one log."""
    counts = _counts(settings)
    files = counts[-1] * settings.scaled(FILES_EACH)
    log = settings.folder / "log"
    write_large_log(log, (1 + files) * FILE_BYTES, file_size_bytes=FILE_BYTES)
    taken: dict[int, list[CaughtUp]] = {count: [] for count in counts}
    _caught_up(spark, log, files, 1)  # warms up JVM and Python
    for number in range(min(settings.rounds, ROUNDS)):
        for count in counts if number % 2 == 0 else counts[::-1]:
            taken[count].append(_caught_up(spark, log, files, count))
        rates = ", ".join(f"{count} logs {taken[count][-1].records_per_s:,.0f}" for count in counts)
        print(f"many logs, catch-up, round {number}: records/s of {rates}", flush=True)
    shutil.rmtree(log)
    for count in counts[1:]:
        pairs = zip(taken[count], taken[1], strict=True)
        yield Figure(
            work=f"catch-up by path, {count} logs in one job",
            ours=f"{count} logs",
            against="1 log",
            unit="records/s in all",
            rounds=tuple(Round(many.records_per_s, one.records_per_s) for many, one in pairs),
            goal=CATCH_UP,
            details={"backlog_bytes": files * FILE_BYTES, "start_s": _starts_s(taken)},
        )
    return statistics.median(one.records_per_s for one in taken[1])


def _starts_s(taken: dict[int, list[CaughtUp]]) -> dict[str, float]:
    return {f"{count} logs": round(statistics.median(one.start_s for one in taken[count]), 1) for count in taken}


def _caught_up(spark: SparkSession, log: Path, files: int, count: int) -> CaughtUp:
    """Catch up with `count` logs, each the first files of `log`; all but its first file appear while the job waits."""
    folder = log.with_name("catch-up")
    ours = [folder / f"log-{number}" for number in range(count)]
    first, *rest = sorted(log.iterdir())[: 1 + files // count]
    for one in ours:
        one.mkdir(parents=True)
        (one / first.name).hardlink_to(first)
    config = config_of(folder / "lake", logs=[{"id": f"rocketmq/log-{n}", "path": str(p)} for n, p in enumerate(ours)])
    started_s = time.monotonic()
    with running(spark, config) as run:
        run.until_at([FILE_BYTES] * count)
        start_s = time.monotonic() - started_s
        time.sleep(_BOOKKEEPING_S)
        appeared_ms = time.time() * 1000
        for one in ours:
            for path in rest:
                (one / path.name).hardlink_to(path)
        run.until_at([(1 + len(rest)) * FILE_BYTES] * count)
    made = commits(Path(LOG.path(config.warehouse)))
    backlog = [one for one in made if one.at_ms >= appeared_ms]
    rows, all_rows = sum(one.rows for one in backlog), sum(one.rows for one in made)
    if rows * (1 + len(rest)) != all_rows * len(rest):
        raise SystemExit(f"many logs: of {all_rows:,} records of {count} logs {rows:,} are of the backlog")
    shutil.rmtree(folder)
    return CaughtUp(start_s, rows / (backlog[-1].at_ms - appeared_ms) * 1000)


def _live(taken: Mapping[int, Live]) -> Iterator[Figure]:
    details = {f"{number} logs": asdict(one) for number, one in taken.items()}
    for count in list(taken)[1:]:
        many, one = taken[count], taken[1]
        yield from compared(
            f"{RATE_PER_S:,} messages/s over HA, {count} logs in one job",
            f"{count} logs",
            "1 log",
            ("records", "records/s in all", KEPT_UP, many.records_per_s, one.records_per_s),
            ("freshness p99", "ms", FRESH, many.p99_ms, one.p99_ms),
            ("first commit of all", "s", STARTED, many.start_s, one.start_s),
            ("memory", "MiB, all processes", HELD, sum(many.held_mib.values()), sum(one.held_mib.values())),
            **details,
        )
        idle_cores = sum(many.idle_cores.values())
        yield bound(f"{count} quiet logs in one job", f"{count} logs", "cores", idle_cores, IDLE_CORES)


def _thousand(one: Live, count: int, records_per_s: float) -> Iterator[Figure]:
    """The bounds of a thousand logs; `records_per_s` is what the bytes of a batch are counted by."""
    batch_ms = _batch_ms(one)
    from_commit_to_commit_s = one.measured_s / max(one.commits, 1)
    bytes_ms = one.records_per_s * from_commit_to_commit_s / records_per_s * 1000
    details: dict[str, Any] = {
        f"{count} logs": asdict(one),
        "a batch, ms": batch_ms,
        "of it for bytes, ms": round(bytes_ms, 1),
        "from commit to commit, s": round(from_commit_to_commit_s, 2),
    }
    for what, unit, value, most in (
        ("a batch beside its bytes", "ms", batch_ms - bytes_ms, THOUSAND_BATCH_MS),
        ("first commit of all", "s", one.start_s, THOUSAND_START_S),
        ("cores when idle", "cores", sum(one.idle_cores.values()), THOUSAND_IDLE_CORES),
    ):
        yield bound(f"{THOUSAND:,} logs in one job, {what}", f"{count:,} logs", unit, value, most, **details)
        details = {}
