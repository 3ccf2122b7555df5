"""``make run MASTER=kafka`` as a newcomer runs it, shortened; twice, the second time until Ctrl-C."""

import re
from pathlib import Path

import pytest

from tests.pipeline.demos import demo, finish, interrupted_beyond, processes_of
from tests.pipeline.read_back import count_of

pytestmark = [pytest.mark.peer, pytest.mark.nightly, pytest.mark.timeout(400)]

PARTITION = re.compile(r"^ +(\d) +([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+)$", re.M)
"""Of the last table: partition, position, group, and three counts."""


def shown_partitions(out: str) -> dict[int, list[int]]:
    rows = [[int(text.replace(",", "")) for text in found] for found in PARTITION.findall(out)]
    return {number: rest for number, *rest in rows}


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


ARGUMENTS = ("--master", "kafka", "--rate-per-s", "700")
ONCE = (*ARGUMENTS, "--duration-s", "6")


def check_once(tmp_path: Path, out: str, err: str) -> tuple[int, int]:
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
    return end, records


def test_it_goes_on_when_run_again_until_ctrl_c(tmp_path: Path) -> None:
    end, records = check_once(tmp_path, *finish(demo(tmp_path, *ONCE)))
    again = demo(tmp_path, *ARGUMENTS, "--keep")
    out, err = interrupted_beyond(end, again)
    assert "Traceback" not in err
    assert f"complete up to {end:,} offsets" in out
    again_end, again_records = check_shown(out)
    assert again_end > end
    assert count_of(tmp_path / "warehouse", "kafka_log") == again_records > records
    assert processes_of(tmp_path) == []
