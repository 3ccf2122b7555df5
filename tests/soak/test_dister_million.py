"""A million entries in batches of ten thousand: a late batch takes as long, and as much memory, as an early one.

The tenth to twentieth batch are compared with the last ten: by then everything is warm.
"""

import time
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from deltalake import DeltaTable

from tests.dister.odd_leader import OddLeader
from tests.pipeline.job_toml import SMALL, job_toml
from tests.resident import held_mib, run_watched

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]

ENTRIES = 1_000_000
BATCH = 10_000
KEYS = 10_000
EARLY, LATE = slice(10, 20), slice(-10, None)
SLOWER_AT_MOST = 1.5
PYTHON_GROWTH_MIB = 75
JAVA_GROWTH_MIB = 150
"""As in `tests/pipeline/test_memory.py`."""


@dataclass(frozen=True)
class Sample:
    """MiB at one moment: the largest Python process, and Java; seconds since 1970."""

    at_s: float
    python_mib: float
    java_mib: float


def committed_at_s(lake: Path) -> list[float]:
    """When each batch was committed, in seconds since 1970, by the ledger."""
    rows = DeltaTable(str(lake / "ledger")).to_pyarrow_table(columns=["start", "records", "committed_at"])
    found: list[datetime] = rows.sort_by("start")["committed_at"].to_pylist()
    assert rows["records"].to_pylist() == [BATCH] * (ENTRIES // BATCH)
    return [at.timestamp() for at in found]


def test_a_million_entries(tmp_path: Path) -> None:
    with OddLeader(tmp_path / "leader", group="million", seed=1) as node:
        last_id = node.write_many({f"key {at * 7919 % KEYS:05}": f"value {at:07}"} for at in range(ENTRIES))
    log = {"id": "dister/million", "path": tmp_path / "leader", "max_entries_per_trigger": BATCH}
    job = job_toml(tmp_path, log, spark=SMALL | {"spark.driver.extraJavaOptions": "-Xms512m"})
    samples: list[Sample] = []

    def look(pid: int) -> None:
        held = held_mib(pid)
        python = max((mib for name, mib in held if name != "java"), default=0.0)
        java = max((mib for name, mib in held if name == "java"), default=0.0)
        samples.append(Sample(time.time(), python, java))

    said = run_watched(["replicate", "--config", str(job), "--available-now"], look)
    assert f"done at offset {last_id + 1}" in said

    commits = committed_at_s(tmp_path / "lake")
    seconds = [after - before for before, after in pairwise(commits)]
    early, late = held_between(samples, commits[EARLY]), held_between(samples, commits[LATE])
    print(  # noqa: T201 - the figures for docs/soak.md
        f"\n{ENTRIES:,} entries in batches of {BATCH:,}: {commits[-1] - commits[0]:,.0f} s; a batch takes "
        f"{median(seconds[EARLY]):.2f} s (10 to 20) and {median(seconds[LATE]):.2f} s (the last ten); the largest "
        f"Python process {early.python_mib:,.0f} and {late.python_mib:,.0f} MiB, Java {early.java_mib:,.0f} and "
        f"{late.java_mib:,.0f} MiB"
    )
    assert median(seconds[LATE]) < SLOWER_AT_MOST * median(seconds[EARLY])
    assert late.python_mib < early.python_mib + PYTHON_GROWTH_MIB
    assert late.java_mib < early.java_mib + JAVA_GROWTH_MIB


def held_between(samples: list[Sample], commits: list[float]) -> Sample:
    """The most that was held while these batches were under way."""
    within = [sample for sample in samples if commits[0] <= sample.at_s <= commits[-1]]
    return Sample(commits[0], max(sample.python_mib for sample in within), max(sample.java_mib for sample in within))
