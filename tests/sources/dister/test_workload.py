"""The workload of a leader."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from sources.dister.embedded.leader_log import LeaderLog, entries_of
from sources.dister.embedded.workload import Workload


def test_it_sets_removes_and_fails(tmp_path: Path) -> None:
    workload = Workload(1)
    with LeaderLog(tmp_path, seed=1) as leader:
        for _ in range(2000):
            workload.write(leader)
    entries = list(entries_of(tmp_path))
    acts = Counter(entry.act for entry in entries)
    assert set(acts) == {300, 310}
    assert acts[300] > acts[310] > 100
    assert 0 < 2000 - len(entries) < 100  # those that failed
    assert any(entry.keys is not None and len(entry.keys) > 1 for entry in entries)
