"""What a person sees of a running job."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from pipeline.monitoring.display import Display, duration, size
from pipeline.monitoring.progress import Phase, Progress
from sources.errors import MasterUnreachable
from tests.pipeline.sample_progress import PROGRESS, TOPIC_PROGRESS


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.4, "0 s"),
        (1.5, "2 s"),
        (59, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (7380, "2 h 3 min"),
        (259_200, "3 d"),
        (277_000, "3 d 4 h"),
    ],
)
def test_a_duration_for_people(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_a_size_for_people() -> None:
    assert [size(value) for value in (None, 0, 999, 1500, 2 * 10**9)] == ["–", "0 B", "999 B", "1.5 kB", "2.0 GB"]


def line(progress: Progress = PROGRESS, **changes: object) -> str:
    console = Console(file=io.StringIO(), width=80)
    quiet = replace(progress, reconnects=0)
    with Display(console, clock=lambda: 0.0) as display:
        assert display([replace(quiet, **changes)])  # type: ignore[arg-type]  # the caller's own field names
    return str(console.file.getvalue()).strip()  # type: ignore[attr-defined]  # a StringIO


def test_a_line_says_where_it_is_and_how_far_behind_and_what_is_not_as_it_should_be() -> None:
    said = line(lag_s=75.0)
    assert said.startswith("rocketmq/broker-a: running, offset 500, lag 400 B, 1 min 15 s, ")
    assert said.endswith("acknowledged 400")
    assert "lag 400 offsets, records/s" in line(TOPIC_PROGRESS, lag_s=0.2)
    assert "lag 400 ids, records/s" in line(log_id="dister/a", lag_s=0.2)
    assert "lag –, records/s" in line(master_maximum=None, lag_s=None)
    sound = line(lag_s=0.2)
    assert "lag 400 B, records/s" in sound
    waiting = line(reconnects=3, phase=Phase.WAITING, error=MasterUnreachable("no connection"))
    for words in ("reconnects 3", "error no connection"):
        assert words in waiting
        assert words.split()[0] not in sound


def test_what_a_broker_says_forges_no_line_and_no_style() -> None:
    error = MasterUnreachable("no [/] answer\nrocketmq/other: running\x1b[2J")
    said = line(phase=Phase.WAITING, error=error)
    assert "\n" not in said
    assert r"error no [/] answer\nrocketmq/other: running\x1b[2J" in said
