"""A day of commits in fast motion, with a job that looks after its tables: what a producer waits for, first and last.

Each message waits for its commit (a SYNC_MASTER), and the next one is sent then; so a commit is a second of the day.
The day with upkeep is compared with its tenth without.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pytest

from sinks.delta.delta_log import newest
from sinks.tables import LEDGER, LOG
from sources.rocketmq.embedded.double_write import DoubleWriteSettings
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from sources.rocketmq.wire.remoting import ResponseCode
from tests.pipeline.job_toml import job_toml
from tests.pipeline.masters import embedded_master
from tests.resident import held_mib

pytestmark = [pytest.mark.soak, pytest.mark.timeout(12 * 3600)]
COMMITS = int(os.environ.get("LOGTWIN_SOAK_COMMITS", 86_400))
DAY_S = COMMITS * 0.25
UPKEEP = {"every_s": DAY_S / 24, "log_hours": DAY_S / 12 / 3600}
VERB = [sys.executable, "-m", "pipeline"]


@dataclass
class Day:
    """What producers waited, in order, the most memory of the job, and its upkeeps by when they began."""

    waited_s: list[float] = field(default_factory=list)
    held_mib: float = 0.0
    upkeeps: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def p99_s(self) -> float:
        return quantiles(self.waited_s, n=100)[-1]


def lived(folder: Path, commits: int, upkeep: dict[str, float]) -> Day:
    found = Day()
    folder.mkdir()
    waits = DoubleWriteSettings(role="SYNC_MASTER", in_sync_replicas=2, slave_timeout_s=60.0)
    with ExitStack() as running:
        served = running.enter_context(embedded_master(folder / "store", double_write=waits))
        job = job_toml(folder, served.options, maintain=upkeep)
        out = running.enter_context((folder / "job.out").open("w"))
        process = running.enter_context(
            subprocess.Popen([*VERB, "replicate", "--config", job], stdout=out, stderr=subprocess.STDOUT)
        )
        running.callback(process.terminate)
        producer = running.enter_context(Producer(served.master.address, answer_timeout_ms=90_000))
        for number in range(-50, commits):
            since_s = time.monotonic()
            while (answer := producer.send(OutgoingMessage("day", bytes(100)))).code != ResponseCode.SUCCESS:
                assert number == -50, answer  # until the job has joined
                assert process.poll() is None, (folder / "job.out").read_text()
            if number >= 0:
                found.waited_s.append(time.monotonic() - since_s)
            if number % 50 == 0:
                found.held_mib = max(found.held_mib, sum(mib for _, mib in held_mib(process.pid)))
                for file in (folder / "lake" / "_runs" / "_upkeep").glob("*.json"):
                    said = json.loads(file.read_text())
                    found.upkeeps[said["began_at"]] = said
        verified = subprocess.run([*VERB, "verify", "--config", job], check=False, capture_output=True, text=True)
        assert verified.returncode == 0, verified.stderr
    return found


def test_a_day_with_upkeep(tmp_path: Path) -> None:
    tenth = COMMITS // 10
    plain, kept = lived(tmp_path / "plain", tenth, {"every_s": 0}), lived(tmp_path / "kept", COMMITS, UPKEEP)
    first_s, last_s = median(kept.waited_s[:tenth]), median(kept.waited_s[-tenth:])
    opened_s = []
    for spec in (LOG, LEDGER):
        path = spec.path(str(tmp_path / "kept" / "lake"))
        since_s = time.monotonic()
        version = newest(path)
        opened_s.append(time.monotonic() - since_s)
        assert version is not None
        assert [name for name in version.files if not Path(path, name).exists()] == []
    entries = len(list(Path(LOG.path(str(tmp_path / "kept" / "lake")), "_delta_log").iterdir()))
    merged = sum(one["merged_files"] for one in kept.upkeeps.values())
    print(  # noqa: T201 - figures for docs/soak.md
        f"\n{COMMITS} commits, {len(kept.upkeeps)} upkeeps, {merged} files merged, the longest took "
        f"{max(one['seconds'] for one in kept.upkeeps.values())} s; waited: median {first_s:.3f} s, last {last_s:.3f} "
        f"s, p99 {kept.p99_s:.3f} s, without {plain.p99_s:.3f} s; held {kept.held_mib:.0f} MiB, without "
        f"{plain.held_mib:.0f}; opened in {opened_s} s; Delta log of {entries}"
    )
    assert not [one["error"] for one in kept.upkeeps.values() if one["error"]]
    assert merged > COMMITS / 2
    assert entries < COMMITS
    assert last_s <= 1.5 * first_s
    assert kept.p99_s <= 1.5 * plain.p99_s
    assert kept.held_mib <= plain.held_mib + 200
