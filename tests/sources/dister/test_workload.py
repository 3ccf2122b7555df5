"""The workload of a leader."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from sources.dister.embedded.leader_log import LeaderLog, entries_of
from sources.dister.embedded.workload import Workload


def log_of(folder: Path, seed: int, count: int) -> bytes:
    workload = Workload(seed)
    with LeaderLog(folder, seed=seed) as leader:
        for _ in range(count):
            workload.write(leader)
    return (folder / "dister.entry.log" / "0" / "0").read_bytes()


def test_the_same_seed_writes_the_same_log(tmp_path: Path) -> None:
    assert log_of(tmp_path / "a", 1, 300) == log_of(tmp_path / "b", 1, 300) != log_of(tmp_path / "c", 2, 300)


def test_it_sets_removes_and_fails(tmp_path: Path) -> None:
    log_of(tmp_path, 1, 2000)
    entries = list(entries_of(tmp_path))
    acts = Counter(entry.act for entry in entries)
    assert set(acts) == {300, 310}
    assert acts[300] > acts[310] > 100
    assert 0 < 2000 - len(entries) < 100  # those that failed
    assert any(entry.keys is not None and len(entry.keys) > 1 for entry in entries)
