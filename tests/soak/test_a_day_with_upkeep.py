"""A day of commits in fast motion, with a job that looks after its tables: what a producer waits for, first and last.

Each message waits for its commit (a SYNC_MASTER), and the next one is sent then; so a commit is a second of the day.
The day with upkeep is compared with its tenth without.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pytest

from sinks.delta.delta_log import newest
from sinks.tables import LEDGER, LOG
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from sources.rocketmq.wire.remoting import ResponseCode
from tests.pipeline.masters import Served, embedded_master
from tests.resident import held_mib

pytestmark = [pytest.mark.soak, pytest.mark.timeout(12 * 3600)]
COMMITS = int(os.environ.get("LOGTWIN_SOAK_COMMITS", 86_400))
SECOND_S = 0.25
DAY_S = COMMITS * SECOND_S
UPKEEP = f"every_s = {DAY_S / 24}\nlog_hours = {DAY_S / 12 / 3600}"


@dataclass
class Run:
    """What producers waited, in order, the most memory of the job, and its upkeeps by when they began."""

    waited_s: list[float] = field(default_factory=list)
    held_mib: float = 0.0
    upkeeps: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def p99_s(self) -> float:
        return quantiles(self.waited_s, n=100)[-1]


@contextmanager
def running(folder: Path, served: Served, upkeep: str) -> Iterator[tuple[Path, int]]:
    job = folder / "job.toml"
    options = "".join(f'{name} = "{value}"\n' for name, value in served.options.items())
    job.write_text(f'warehouse = "{folder / "lake"}"\n[maintain]\n{upkeep}\n[[logs]]\nid = "rocketmq/day"\n{options}')
    command = [sys.executable, "-m", "pipeline", "replicate", "--config", str(job)]
    with (folder / "job.out").open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            yield job, process.pid
        finally:
            process.terminate()
            assert process.wait(60) == 0, (folder / "job.out").read_text()[-3000:]


def measured(folder: Path, commits: int, upkeep: str) -> Run:
    found = Run()
    folder.mkdir()
    master = embedded_master(folder / "store", role="SYNC_MASTER", in_sync_replicas=2, slave_timeout_s=60.0)
    with master as served, running(folder, served, upkeep) as (job, pid):
        with Producer(served.master.address, answer_timeout_ms=90_000) as producer:
            for number in range(-50, commits):
                since_s = time.monotonic()
                while (answer := producer.send(OutgoingMessage("day", bytes(100)))).code != ResponseCode.SUCCESS:
                    assert number == -50, answer  # until the job has joined
                    since_s = time.monotonic()
                if number >= 0:
                    found.waited_s.append(time.monotonic() - since_s)
                if number % 100 == 0:
                    found.held_mib = max(found.held_mib, sum(mib for _, mib in held_mib(pid)))
                    for file in (folder / "lake" / "_runs" / "_upkeep").glob("*.json"):
                        said = json.loads(file.read_text())
                        found.upkeeps[said["began_at"]] = said
        verify = [sys.executable, "-m", "pipeline", "verify", "--config", str(job)]
        assert subprocess.run(verify, check=False, capture_output=True).returncode == 0
    return found


def test_a_day_with_upkeep(tmp_path: Path) -> None:
    plain = measured(tmp_path / "plain", COMMITS // 10, "every_s = 0")
    kept = measured(tmp_path / "kept", COMMITS, UPKEEP)
    tenth = COMMITS // 10
    first_s, last_s = median(kept.waited_s[:tenth]), median(kept.waited_s[-tenth:])
    opens = {}
    for spec in (LOG, LEDGER):
        path = spec.path(str(tmp_path / "kept" / "lake"))
        since_s = time.monotonic()
        version = newest(path)
        opens[spec.name] = time.monotonic() - since_s
        assert version is not None
        assert [name for name in version.files if not Path(path, name).exists()] == []
    ended = [one for one in kept.upkeeps.values() if one["ended_at"] is not None]
    entries = len(list(Path(LOG.path(str(tmp_path / "kept" / "lake")), "_delta_log").iterdir()))
    print(  # noqa: T201 - figures for docs/soak.md
        f"\n{COMMITS} commits, {len(kept.upkeeps)} upkeeps; waited: median {first_s:.3f} s, last {last_s:.3f} s; p99 "
        f"{kept.p99_s:.3f} s, without {plain.p99_s:.3f} s; held {kept.held_mib:.0f} MiB, without {plain.held_mib:.0f}; "
        f"opened in {opens}; Delta log of {entries}; upkeep took {[one['seconds'] for one in ended]}"
    )
    assert sum(one["merged_files"] for one in kept.upkeeps.values()) > COMMITS / 2
    assert not [one["error"] for one in ended if one["error"]]
    assert entries < COMMITS
    assert last_s <= 1.5 * first_s
    assert kept.p99_s <= 1.5 * plain.p99_s
    assert kept.held_mib <= plain.held_mib + 200
