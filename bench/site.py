"""What a large site takes, computed from recorded results: ``python -m bench.site`` writes it into docs/scaling.md.

`bench.many_logs` and `bench.many_partitions` have runs of one driver with few logs and with many, under the same load.
All follows from them:

    logs of a driver    of the largest run that commits as OFTEN and is as FRESH as the one with the fewest logs
    drivers             logs / logs of a driver, rounded up: as many shards of one configuration
    cores, memory       of each driver base + each × logs: the line through the run with the fewest logs and that one
    commits a day       of each driver those of that run, to the table of the records
    bytes a day         commits × (base + each × logs), of all tables' Delta logs
    requests            of each driver its batches × brokers × those that a batch sends to a broker

Cores are for the load that was measured, for each driver: more bytes take more of them (docs/scaling.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from bench.contest import Goal
from bench.results import FOLDER, Measured, read_results
from bench.table import number

OFTEN, FRESH = Goal(least=0.95), Goal(most=2.0)
DAY_S = 86_400
DOCUMENT = Path(__file__).parents[1] / "docs" / "scaling.md"
MARK = "<!-- by python -m bench.site -->"


@dataclass(frozen=True, slots=True)
class SitePart:
    """A part of the site: its runs are those of the benchmark `work`. A batch sends `requests` to each broker."""

    name: str
    work: str
    logs: int
    brokers: int
    requests: int


SITE = (
    # of a broker: its minimum, its maximum, the report of the connection that reads, the acknowledgement
    SitePart("500 RocketMQ brokers, a log each", "many_logs", logs=500, brokers=500, requests=4),
    # of a broker, for all partitions that it leads: ListOffsets, and Fetch by each of two tasks
    SitePart("20,000 partitions on 100 Kafka brokers", "many_partitions", logs=20_000, brokers=100, requests=3),
)


@dataclass(frozen=True, slots=True)
class DriverRun:
    """A measured run of one driver."""

    logs: int
    commits_per_s: float
    p99_ms: float
    cores: float
    idle_cores: float
    mib: float
    delta_log_bytes: float
    """For a commit."""

    @classmethod
    def of(cls, logs: int, live: Mapping[str, Any]) -> DriverRun:
        """Of the details that `bench.many_live.Live` becomes in the results."""
        return cls(
            logs,
            commits_per_s=live["commits"] / live["measured_s"],
            p99_ms=live["p99_ms"],
            cores=sum(live["cores"].values()),
            idle_cores=sum(live["idle_cores"].values()),
            mib=sum(live["held_mib"].values()),
            delta_log_bytes=live["delta_log_bytes"],
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """What a part takes, all its drivers together; `logs` are those of one driver at most."""

    logs: int
    drivers: int
    cores: float
    idle_cores: float
    gib: float
    commits_a_day: float
    delta_log_gb_a_day: float
    requests_per_s: float


def plan(part: SitePart, runs: Iterable[DriverRun]) -> Plan:
    """Raises ValueError if there are no runs."""
    few, *more = sorted(runs, key=lambda one: one.logs)
    carried = [
        one
        for one in more
        if OFTEN.is_met(one.commits_per_s / few.commits_per_s) and FRESH.is_met(one.p99_ms / few.p99_ms)
    ]
    most = carried[-1] if carried else few
    drivers = ceil(part.logs / most.logs)

    def in_all(name: str) -> float:
        """Base for each driver, each for each log."""
        at_few, at_most = getattr(few, name), getattr(most, name)
        each = (at_most - at_few) / (most.logs - few.logs) if carried else at_few / few.logs
        return float(drivers * (at_few - each * few.logs) + each * part.logs)

    batches_a_day = most.commits_per_s * DAY_S
    return Plan(
        logs=most.logs,
        drivers=drivers,
        cores=in_all("cores"),
        idle_cores=in_all("idle_cores"),
        gib=in_all("mib") / 1024,
        commits_a_day=drivers * batches_a_day,
        delta_log_gb_a_day=in_all("delta_log_bytes") * batches_a_day / 1e9,
        # a driver's logs lie on as many of the brokers as there can be
        requests_per_s=part.requests * most.commits_per_s * drivers * min(part.brokers, most.logs, part.logs / drivers),
    )


def runs_of(work: Measured) -> Iterator[DriverRun]:
    """The runs in the details of a benchmark's figures; their names begin with the number of logs."""
    details = (item for figure in work.figures for item in figure.details.items())
    lives = {name: value for name, value in details if isinstance(value, Mapping) and "delta_log_bytes" in value}
    for name, live in lives.items():
        if found := re.match(r"\d+", name):
            yield DriverRun.of(int(found[0]), live)


def newest(folder: Path, name: str) -> Measured:
    """The newest complete results of a benchmark at its full size. Raises SystemExit if there are none."""
    days = (read_results(path).works.get(name) for path in sorted(folder.glob("20*.json"), reverse=True))
    whole = (one for one in days if one is not None and one.scale == 1 and not one.error and any(runs_of(one)))
    if (found := next(whole, None)) is None:
        raise SystemExit(f"{folder} has no runs of {name} to plan from: python -m bench --only {name}")
    return found


def table(plans: Mapping[str, Plan]) -> str:
    """The plans of some parts, by name, as Markdown."""
    rows = [
        ("", "logs of a driver", "drivers", "cores", "cores when quiet", "memory", "commits a day", "Delta log a day",
         "requests to brokers"),
        ("---",) * 9,
        *(
            (
                name, number(one.logs), number(one.drivers), number(one.cores), number(one.idle_cores),
                f"{number(one.gib)} GiB", number(one.commits_a_day), f"{number(one.delta_log_gb_a_day)} GB",
                f"{number(one.requests_per_s)}/s",
            )
            for name, one in plans.items()
        ),
    ]  # fmt: skip
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def in_document(text: str, rows: str) -> str:
    """`text` with `rows` as the table below MARK. Raises ValueError if it has no MARK."""
    head, found, rest = text.partition(MARK)
    if not found:
        raise ValueError(f"there is no {MARK}")
    rest = re.sub(r"^\n+([|].*\n)*\n*", "", rest)
    return f"{head}{MARK}\n\n{rows}" + (f"\n{rest}" if rest else "")


if __name__ == "__main__":
    plans = {part.name: plan(part, runs_of(newest(FOLDER, part.work))) for part in SITE}
    DOCUMENT.write_text(in_document(DOCUMENT.read_text(), table(plans)))
