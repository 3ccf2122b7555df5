"""bench.arrived: which messages a table has, when they became visible, and what follows from that."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.arrived import TOPIC, Arrived, rates


def commit(table: Path, version: int, *rows: tuple[str, str, int, int]) -> None:
    """One that adds a file of rows, if there are any: log id, topic, offset, ms at which they were stored."""
    actions: list[dict[str, object]] = [{"commitInfo": {"timestamp": 1}}]
    if rows:
        logs, topics, offsets, stored = zip(*rows, strict=True)
        at = pa.array([1000 * one for one in stored], pa.timestamp("us", "UTC"))
        columns = {"log_id": logs, "topic": topics, "offset": offsets, "at": at}
        pq.write_table(pa.table(columns), table / f"f {version}.parquet")
        actions.append({"add": {"path": f"f%20{version}.parquet", "stats": json.dumps({"numRecords": len(rows)})}})
    (table / "_delta_log").mkdir(exist_ok=True)
    path = table / "_delta_log" / f"{version:020d}.json"
    path.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def test_each_commit_is_read_once_and_other_topics_do_not_count(tmp_path: Path) -> None:
    found = Arrived(str(tmp_path), "at")
    assert found.look() == 0
    commit(tmp_path, 0, ("a", TOPIC, 0, 5), ("a", "other", 1, 5))
    assert found.look() == 1
    (tmp_path / "f 0.parquet").unlink()
    commit(tmp_path, 1, ("a", TOPIC, 2, 6), ("b", TOPIC, 0, 6))
    assert [found.look(), found.look()] == [3, 3]
    there = found.each_once(3).to_pydict()
    assert (there["log_id"], there["offset"], there["stored_ms"]) == (["a", "a", "b"], [0, 2, 0], [5, 6, 6])
    changed_ms = [path.stat().st_ctime_ns / 1e6 for path in sorted((tmp_path / "_delta_log").iterdir())]
    assert there["visible_ms"] == [changed_ms[0], changed_ms[1], changed_ms[1]]
    commit(tmp_path, 2, ("b", TOPIC, 0, 6))  # for one that is missing
    with pytest.raises(SystemExit, match="has 4 rows, 3 different ones, not 4"):
        found.each_once(4)


def test_a_commit_of_which_the_driver_has_no_answer_is_not_visible_yet(tmp_path: Path) -> None:
    answered: list[float] = []
    found = Arrived(str(tmp_path), "at", answered)
    commit(tmp_path, 0)
    commit(tmp_path, 1, ("a", TOPIC, 0, 5))
    assert found.look() == 0
    answered.append(70.0)
    assert found.each_once(1)["visible_ms"].to_pylist() == [70]


def test_commits_count_when_they_are_visible_and_messages_when_they_are_stored() -> None:
    found = pa.table(
        {
            "log_id": ["a", "b", "a", "a", "a"],
            "offset": [0, 0, 1, 2, 3],
            "stored_ms": [900.0, 1000.0, 1900.0, 2900.0, 3000.0],
            "visible_ms": [1500.0, 1500.0, 2500.0, 3500.0, 3500.0],
        }
    )
    assert rates(found, 1000.0, 3000.0) == {
        "measured_s": 2.0,
        "records_per_s": 1.5,
        "stored_per_s": 1.5,
        "p50_ms": 600,
        "p99_ms": 600,
        "commits": 2,
        "logs_in_commit": 1,
    }
