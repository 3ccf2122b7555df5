"""``make run MASTER=kafka``, shortened. Run again, and until Ctrl-C: `test_demo.py`, `test_kafka_broker.py`."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.demos import DemoHere
from tests.pipeline.read_back import count_of

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.nightly, pytest.mark.timeout(400)]

PARTITION = re.compile(r"^ +(\d) +([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+)$", re.M)
"""Of the last table: partition, position, group, and three counts."""


def shown_partitions(out: str) -> dict[int, list[int]]:
    rows = [[int(text.replace(",", "")) for text in found] for found in PARTITION.findall(out)]
    return {number: rest for number, *rest in rows}


def processes_of(folder: Path) -> list[int]:
    found = [(one.pid, one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"])]
    return [pid for pid, command in found if str(folder) in " ".join(command)]


def check_shown(out: str) -> tuple[int, int]:
    """What the proof shows agrees with itself. Returns the sum of all positions, and how many records there are."""
    shown = shown_partitions(out)
    assert list(shown) == list(range(8))
    for position, group, *counts in shown.values():
        assert group == position > 0
        assert len(set(counts)) == 1
        assert 0 < counts[0] <= position
    records = sum(counts[0] for _, _, *counts in shown.values())
    assert f"equal: {records:,} records" in out
    return sum(position for position, *_ in shown.values()), records


def test_it_ends_by_itself(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = DemoHere(capsys, monkeypatch)
    out, err = here(tmp_path, "--master", "kafka", "--rate-per-s", "700", "--duration-s", "6")
    end, records = check_shown(out)
    assert "the table is empty" in out
    unwrapped = " ".join(out.split())
    assert f"acknowledged {end:,}" in unwrapped
    assert re.search(r"[1-9]\d* transactions committed, [1-9]\d* aborted", unwrapped)
    assert out.count("complete  0 to") == 8
    assert "missing" not in out.replace("is anything missing?", "")
    assert "Traceback" not in err
    assert count_of(tmp_path / "warehouse", "kafka_log") == records > 3000
    assert records < end  # aborted records, and the marks of transactions, have offsets too
    assert processes_of(tmp_path) == []
