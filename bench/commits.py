"""What the commit of a small batch costs at table version 10, 1,000 and 10,000 of a log, the latter three hours old.

This measures the path to the acknowledgement with the sink's own code: read the table's newest version, read and check
the log's state, commit files, transaction version and position, and sync. The three tables take turns, commit by
commit; a round is the median of COMMITS for each. Figures compare the two older tables with the young one.

The tables look as a stream of one commit a second leaves them. They are written by hand (`tests.sinks.many_commits`,
with the checksums of Kernel and Hadoop, without the checkpoints in between, 5 % of the names), then by LEAD_IN commits
that do not count. Kernel's hooks follow each commit, as in a job: a checksum, and every tenth time a checkpoint; old
commits are kept for days. ``logtwin maintain``, which operators run, removes those older than two hours: its effect on
the oldest table is in the details, as are the hooks, which run after the acknowledgement, and a start. Left out are
files (tasks write them), the acknowledgement itself (a thread is woken), and the ledger's own commit after it.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from bench.contest import Figure, Goal, Round, Settings
from bench.peers import ON_CORES, plain_session
from sinks.batch.replica import Replica, open_together
from sinks.state.fence import this_writer
from sinks.state.log_state import LogState
from sinks.values.ledger_row import LedgerRow
from sources.offsets import Offset
from sources.sole_log import SilentSession
from tests.pipeline.day_of_commits import log_path, maintain, newest, replicate_a_day
from tests.sinks.long_log import MASTER, file_of
from tests.sinks.many_commits import COMMIT_BYTES, COMMIT_RECORDS
from tests.sinks.one_log import OneLog

YOUNG = 10
OLD = (1_000, 10_000)
COMMITS = 20
LEAD_IN = 9
MAINTAIN_LOG_HOURS = 2.0  # the default
GOAL = Goal(most=1.5)

_T = TypeVar("_T")


@dataclass
class Times:
    """Milliseconds of each commit: `read` and `commit` come before the acknowledgement, `hooks` after it."""

    read: list[float] = field(default_factory=list)
    commit: list[float] = field(default_factory=list)
    hooks: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(read + commit for read, commit in zip(self.read, self.commit, strict=True))


class GrownTable:
    """The log table in `warehouse`, with about `version` commits of a log, which this process owns."""

    def __init__(self, spark: SparkSession, warehouse: Path, version: int) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._path = Path(log_path(warehouse))
        replicate_a_day(spark, warehouse, max(1, version - LEAD_IN), recent=0)
        self._take()
        self.commits(LEAD_IN)

    def _take(self) -> None:
        self._table = OneLog(self._spark, str(self._path), MASTER.log_id)
        self._state = self._table.claim(this_writer())
        self._table.run_hooks()

    def commits(self, count: int) -> Times:
        times = Times()
        for _ in range(count):
            self.commit(times)
        return times

    def commit(self, times: Times) -> None:
        """Commit one more batch of COMMIT_RECORDS, as `sinks.batch.group` does."""
        file = file_of(str(self._path), 0, COMMIT_RECORDS)
        held = _timed(times.read, self._table.read)
        if held.state != self._state:
            raise ValueError("another job writes this log")
        state = _moved(self._state)
        _timed(times.commit, lambda: self._table.commit(held, state, [file]))
        self._state = state
        _timed(times.hooks, self._table.run_hooks)

    def maintained(self) -> Times:
        """The times after ``logtwin maintain``, which runs as a separate job."""
        maintain(self._spark, self._warehouse, MAINTAIN_LOG_HOURS)
        self._take()
        self.commits(LEAD_IN)
        return self.commits(COMMITS)

    def size(self) -> dict[str, Any]:
        """The size of the table, and the time that its next owner needs before the first batch."""
        log = self._path / "_delta_log"
        checkpoints = sorted(log.glob("*.checkpoint.parquet"))
        opens: list[float] = []
        replica = Replica(self._spark, str(self._warehouse), MASTER, SilentSession())
        _timed(opens, lambda: open_together([replica]))
        return {
            "version": newest(self._spark, self._warehouse).version,
            "delta_log_files": sum(1 for _ in log.iterdir()),
            "checkpoint_bytes": checkpoints[-1].stat().st_size,
            "open_ms": opens[0],
        }


def measure(settings: Settings) -> Iterator[Figure]:
    versions = (YOUNG, *(settings.scaled(version, least=2 * YOUNG) for version in OLD))
    with plain_session(settings.folder, ON_CORES) as spark:
        rounds = [_round(spark, settings.folder, versions, number) for number in range(settings.rounds)]
        maintained = _maintained(spark, settings.folder / "maintained", versions[-1])
    for at, version in enumerate(versions[1:], start=1):
        yield Figure(
            work=f"commit cost at table version {OLD[at - 1]:,}",
            ours=f"at version {version:,}",
            against=f"at version {YOUNG}",
            unit="ms",
            rounds=tuple(Round(found[at]["median_ms"], found[0]["median_ms"]) for found in rounds),
            goal=GOAL,
            details={"commits": COMMITS, "last_round": rounds[-1], "oldest_maintained": maintained},
        )


def _round(spark: SparkSession, folder: Path, versions: tuple[int, ...], number: int) -> list[dict[str, Any]]:
    """The times of the commits, and the size of the table, for each version."""
    lakes = [folder / f"at-{version}" for version in versions]
    tables = [GrownTable(spark, lake, version) for lake, version in zip(lakes, versions, strict=True)]
    times = [Times() for _ in tables]
    for _ in range(COMMITS):
        for table, one in zip(tables, times, strict=True):
            table.commit(one)
    found = [{**_medians(one), **table.size()} for one, table in zip(times, tables, strict=True)]
    for lake in lakes:
        shutil.rmtree(lake)
    shown = ", ".join(f"{one['median_ms']:,.0f} ms at {at:,}" for one, at in zip(found, versions, strict=True))
    print(f"commits, round {number}: {shown}", flush=True)
    return found


def _maintained(spark: SparkSession, lake: Path, version: int) -> dict[str, Any]:
    table = GrownTable(spark, lake, version)
    found = {**_medians(table.maintained()), **table.size()}
    shutil.rmtree(lake)
    print(f"commits, maintained at {version:,}: {found['median_ms']:,.0f} ms", flush=True)
    return found


def _medians(times: Times) -> dict[str, float]:
    return {
        "median_ms": times.median,
        "read_ms": statistics.median(times.read),
        "commit_ms": statistics.median(times.commit),
        "hooks_ms": statistics.median(times.hooks),
        "hooks_with_checkpoint_ms": max(times.hooks),
    }


def _moved(state: LogState) -> LogState:
    start = state.offset or Offset(0)
    end, now_us = Offset(start + COMMIT_BYTES), time.time_ns() // 1000
    row = LedgerRow(
        start=start,
        end=end,
        records=COMMIT_RECORDS,
        bytes=COMMIT_BYTES,
        checksum=f"sha256:{start:064x}",
        first_store_timestamp=now_us,
        last_store_timestamp=now_us,
        committed_at=now_us,
    )
    return state.moved_to(end, first=Offset(0), ledger=(row,))


def _timed(into: list[float], action: Callable[[], _T]) -> _T:
    since = time.perf_counter()
    done = action()
    into.append((time.perf_counter() - since) * 1000)
    return done
