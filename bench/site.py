"""What a large site takes, computed from recorded results: ``python -m bench.site`` writes it into docs/scaling.md.

From `bench.many_logs` and `bench.many_partitions`. For an interval between batches all follows from the run of one
driver with the most logs whose batch takes BUSY of it at most; docs/scaling.md says how.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from bench.results import FOLDER, Measured, read_results
from bench.table import number

INTERVALS_S = (1, 3, 10)
BUSY = 0.6
OFTEN = 5.0  # a commit and the ledger's take 60 ms on a local disk: busy for a third of the time
OWN_S, OTHER_S = 40e-6, 4e-6  # of one core, in Python, measured on 2026-11-27 with 1,000 of 20,000 logs
LOOK_EVERY_S = 1.5
DAY_S = 86_400
DOCUMENT = Path(__file__).parents[1] / "docs" / "scaling.md"
MARK = "<!-- by python -m bench.site -->"


@dataclass(frozen=True, slots=True)
class SitePart:
    """A part of the site, by runs of benchmark `work`; `looks` and `reads`: requests to a broker, a look or batch."""

    name: str
    work: str
    logs: int
    brokers: int
    looks: int
    reads: int


SITE = (
    SitePart("500 RocketMQ brokers, a log each", "many_logs", logs=500, brokers=500, looks=1, reads=3),
    # a Fetch by each of two tasks, for all partitions that the broker leads
    SitePart("20,000 partitions on 100 Kafka brokers", "many_partitions", logs=20_000, brokers=100, looks=1, reads=2),
)


@dataclass(frozen=True, slots=True)
class DriverRun:
    """A measured run of one driver; `batch_core_s` and `delta_log_bytes` are those of a batch."""

    logs: int
    batch_s: float
    batch_core_s: float
    idle_cores: float
    gib: float
    delta_log_bytes: float

    @classmethod
    def of(cls, logs: int, live: Mapping[str, Any]) -> DriverRun:
        """Of the details that `bench.many_live.Live` becomes in the results."""
        cores, idle = sum(live["cores"].values()), sum(live["idle_cores"].values())
        return cls(
            logs,
            batch_s=live["batch_ms"]["addBatch"] / 1000,
            batch_core_s=(cores - idle) * live["measured_s"] / live["commits"],
            idle_cores=idle,
            gib=sum(live["held_mib"].values()) / 1024,
            delta_log_bytes=live["delta_log_bytes"],
        )


def row(part: SitePart, interval_s: float, runs: Iterable[DriverRun]) -> tuple[str, ...]:
    """What a part takes, all its drivers together, with batches so often. Raises ValueError if no run fits."""
    run = max((one for one in runs if one.batch_s <= BUSY * interval_s), key=lambda one: one.logs)
    drivers = ceil(part.logs / run.logs)
    warehouses = ceil(drivers / interval_s / OFTEN)
    others_s = OWN_S * part.logs / drivers + OTHER_S * part.logs / warehouses if drivers > warehouses else 0.0
    idle = drivers * run.idle_cores
    asked = part.looks / min(interval_s, LOOK_EVERY_S) + part.reads / interval_s
    commits = drivers * DAY_S / interval_s
    brokers = min(part.brokers, ceil(part.logs / drivers))  # a driver's logs lie on as many as there can be
    return (
        part.name, f"{interval_s:g} s", f"{interval_s + run.batch_s:.1f} s", number(run.logs), number(drivers),
        number(warehouses), number(idle + drivers * (run.batch_core_s + others_s) / interval_s), number(idle),
        f"{number(drivers * run.gib)} GiB", number(commits), f"{number(commits * run.delta_log_bytes / 1e9)} GB",
        f"{number(asked * drivers * brokers)}/s",
    )  # fmt: skip


HEAD = (
    "", "a batch every", "oldest record in it", "logs of a driver", "drivers", "warehouses", "cores", "when quiet",
    "memory", "commits a day", "Delta log a day", "requests to brokers",
)  # fmt: skip


def newest(folder: Path, name: str) -> list[DriverRun]:
    """The runs of a benchmark's newest complete results at its full size; empty if there are none."""
    days = (read_results(path).works.get(name) for path in sorted(folder.glob("20*.json"), reverse=True))
    whole = (_runs_of(one) for one in days if one is not None and one.scale == 1 and not one.error)
    return next((runs for runs in whole if runs), [])


def _runs_of(work: Measured) -> list[DriverRun]:
    details = (item for figure in work.figures for item in figure.details.items() if isinstance(item[1], Mapping))
    named = ((re.match(r"\d+", name), live) for name, live in details if "delta_log_bytes" in live)
    return [DriverRun.of(int(logs[0]), live) for logs, live in named if logs]


def in_document(text: str, rows: Iterable[tuple[str, ...]]) -> str:
    """`text` with `rows` as the table below MARK. Raises ValueError if it has no MARK."""
    head, found, rest = text.partition(MARK)
    if not found:
        raise ValueError(f"there is no {MARK}")
    rest = re.sub(r"^\n+([|].*\n)*\n*", "", rest)
    lines = "".join(f"| {' | '.join(one)} |\n" for one in (HEAD, ("---",) * len(HEAD), *rows))
    return f"{head}{MARK}\n\n{lines}" + (f"\n{rest}" if rest else "")


if __name__ == "__main__":
    measured = [(part, runs) for part in SITE if (runs := newest(FOLDER, part.work))]
    rows = [row(part, interval_s, runs) for part, runs in measured for interval_s in INTERVALS_S]
    DOCUMENT.write_text(in_document(DOCUMENT.read_text(), rows))
