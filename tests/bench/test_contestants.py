"""bench.contestants: which part of a table's Delta log is the steady state, and what a job is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.contestants import steady_records_per_s


def commit(table: Path, version: int, at_ms: int, *rows: int) -> None:
    """One that added a file for each of `rows`."""
    actions: list[dict[str, object]] = [{"commitInfo": {"timestamp": at_ms}}]
    actions += [{"add": {"path": "a%20file", "stats": json.dumps({"numRecords": one})}} for one in rows]
    log = table / "_delta_log"
    log.mkdir(exist_ok=True)
    (log / f"{version:020d}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Made, then 700 records in three commits, with one between them that added none."""
    commit(tmp_path, 0, 1_000)
    commit(tmp_path, 1, 9_000, 100)
    commit(tmp_path, 2, 11_000, 100, 200)
    commit(tmp_path, 3, 12_000)
    commit(tmp_path, 4, 13_000, 300)
    return tmp_path


def test_the_steady_state_is_without_the_first_commits_and_the_last_ones(table: Path) -> None:
    for records, left_out in ((699, 1), (701, 1), (700, 3)):
        with pytest.raises(SystemExit, match="has 700 records in 3 commits"):
            steady_records_per_s(table, records, left_out=left_out)
    assert steady_records_per_s(table, 700, left_out=1) == 600 / 4
    assert steady_records_per_s(table, 700, left_out=2) == 300 / 2
    assert steady_records_per_s(table, 700, left_out=1, end_left_out=1) == 300 / 2
    commit(table, 5, 20_000, 149)  # less than half of the largest
    assert steady_records_per_s(table, 849, left_out=1, end_left_out=1) == 300 / 2
    commit(table, 6, 21_000, 150)
    assert steady_records_per_s(table, 999, left_out=1, end_left_out=1) == 749 / 11
    with pytest.raises(SystemExit, match="no steady state"):
        steady_records_per_s(table, 999, left_out=3, end_left_out=2)
