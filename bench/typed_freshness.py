"""How long after a commit of `log` a typed table has it, at 1,000 messages/s and a trigger of 1 s.

logtwin runs as a job does (defaults, with metadata), as a slave over HA of a real RocketMQ broker, with one typed table
whose columns are found in JSON of 1 KB: appended, or by key. Each commit of the log in the measured time counts: the
delay is from when it becomes visible until the first version of the typed table becomes visible that is at that
position or further. It is compared with the time that a batch of the log takes, from one commit to the next, in the
same turn. A commit is visible as in `bench.freshness`. In the end the table must have all messages that were sent.
"""

from __future__ import annotations

import json
import shutil
import statistics
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.arrived import TOPIC
from bench.contest import Figure, Goal, Round, Settings, percentile
from bench.contestants import config_of, replicate
from bench.freshness import COURSE
from bench.many_live import ORDERS, TRIGGER, Course, Masters, Running, live, running
from bench.payloads import ORDER_KEYS, orders
from bench.peers import running_session
from bench.sender import ROCKETMQ_VERSION
from pipeline.spark.session import NEEDED
from sinks.tables import LOG
from sinks.typed.state import DOMAIN

GOAL = Goal(most=1.0)
LOG_ID = "rocketmq/log-0"
MODES: dict[str, dict[str, Any]] = {"append": {}, "upsert": {"mode": "upsert", "key": ["order_id"]}}


@dataclass(frozen=True, slots=True)
class RoundTurn:
    """Medians, the 99th percentile of the delay, and the numbers of measured commits of the log and of the table."""

    delay_p50_ms: float
    delay_p99_ms: float
    batch_ms: float
    commits: int
    steps: int


def measure(settings: Settings) -> Iterator[Figure]:
    course = COURSE.scaled(settings)
    with running_session(settings.folder, heap=NEEDED["spark.driver.memory"]) as spark:
        for mode in MODES:
            turns = [_turn(spark, settings, mode) for _ in range(settings.rounds)]
            yield Figure(
                work=f"typed table, {mode}: behind its log, {course.rate_per_s:,} messages/s",
                ours="from a commit of log to that of the typed table",
                against="from one commit of log to the next",
                unit="ms",
                rounds=tuple(Round(one.delay_p50_ms, one.batch_ms) for one in turns),
                goal=GOAL,
                details={
                    "p99 of the delay, ms": statistics.median(one.delay_p99_ms for one in turns),
                    "commits of log": statistics.median(one.commits for one in turns),
                    "steps of the table": statistics.median(one.steps for one in turns),
                    "keys": ORDER_KEYS, "warm_up_s": course.warm_up_s, "measured_s": course.measured_s,
                    "trigger": TRIGGER, "broker": ROCKETMQ_VERSION,
                },
            )  # fmt: skip


def _turn(spark: SparkSession, settings: Settings, mode: str) -> RoundTurn:
    lake, course = settings.folder / mode, COURSE.scaled(settings)
    one = live(spark, settings, ORDERS, 1, COURSE, partial(_with_table, mode), lake=str(lake))
    _check(spark, lake, one.messages, mode)
    found = _measured(lake, course)
    print(
        f"{mode}: p50 {found.delay_p50_ms:,.0f} ms, p99 {found.delay_p99_ms:,.0f} ms behind, "
        f"{found.batch_ms:,.0f} ms a batch, {found.commits} commits, {found.steps} steps",
        flush=True,
    )
    shutil.rmtree(lake)
    return found


@contextmanager
def _with_table(mode: str, spark: SparkSession, lake: str, masters: Masters, at: Any) -> Iterator[Running]:
    table = {"name": "orders", "from": [TOPIC], **MODES[mode]}
    config = config_of(lake, metadata=True, tables=[table], **masters.listed(at))
    with running(spark, config) as run:
        yield run
    replicate(spark, config)  # the job may have ended before the last step of the table


def _measured(lake: Path, course: Course) -> RoundTurn:
    log = _positions(Path(LOG.path(str(lake))), f"logtwin.{LOG_ID}", lambda state: state.get("offset", 0))
    table = _positions(lake / "tables" / "orders", DOMAIN, lambda state: state["logs"].get(LOG_ID, {}).get("offset", 0))
    begin_ms = next(seen_ms for seen_ms, position in log if position) + course.warm_up_s * 1000
    end_ms = begin_ms + course.measured_s * 1000
    counted = [(seen_ms, position) for seen_ms, position in log if begin_ms <= seen_ms < end_ms]
    positions = [position for _, position in table]
    delays = [table[bisect_left(positions, position)][0] - seen_ms for seen_ms, position in counted]
    gaps = [after - before for (before, _), (after, _) in pairwise(counted)]
    return RoundTurn(
        delay_p50_ms=percentile(delays, 0.5),
        delay_p99_ms=percentile(delays, 0.99),
        batch_ms=percentile(gaps, 0.5),
        commits=len(counted),
        steps=sum(begin_ms <= seen_ms < end_ms for seen_ms, _ in table),
    )


def _positions(table: Path, domain: str, position_of: Any) -> list[tuple[float, int]]:
    """When each commit that moves the table became visible, in ms since 1970, and the position from then on."""
    found = []
    for commit in sorted(table.glob("_delta_log/*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            if action.get("domainMetadata", {}).get("domain") == domain:
                state = json.loads(action["domainMetadata"]["configuration"])
                found.append((commit.stat().st_ctime_ns / 1e6, position_of(state)))
    return found


def _check(spark: SparkSession, lake: Path, sent: int, mode: str) -> None:
    """Raises SystemExit unless the table has what was sent."""
    expected = sent if mode == "append" else len({order for order, _ in orders(sent)})
    rows = spark.read.format("delta").load(str(lake / "tables" / "orders")).count()
    if rows != expected:
        raise SystemExit(f"the typed table has {rows:,} rows, not {expected:,}")
