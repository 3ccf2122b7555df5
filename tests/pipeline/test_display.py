"""What a person sees of a running job."""

from collections import Counter
from dataclasses import replace

import pytest
from rich.console import Console

from pipeline.monitoring.display import MOST_LINES, Display, duration, size
from pipeline.monitoring.progress import Phase, Progress
from pipeline.system.console import facts_of
from sources.errors import MasterUnreachable
from tests.log_lines import said_by
from tests.pipeline.sample_progress import PROGRESS, TOPIC_PROGRESS


def test_durations_and_sizes_for_people() -> None:
    said = {None: "–", 0: "0 s", 0.4: "0 s", 1.5: "2 s", 59: "59 s", 60: "1 min", 61: "1 min 1 s", 3600: "1 h"}
    said |= {3605: "1 h", 7380: "2 h 3 min", 259_200: "3 d", 277_000: "3 d 4 h"}
    assert {seconds: duration(seconds) for seconds in said} == said
    assert [size(value) for value in (None, 0, 999, 1500, 2 * 10**9)] == ["–", "0 B", "999 B", "1.5 kB", "2.0 GB"]


class Watched:
    """A display that nobody sits before, at a time that a test sets; what it has logged since it was asked last."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO", "pipeline.monitoring.display")
        self._caplog = caplog
        self.now_s = 0.0
        self._display = Display(Console(), is_live=False, clock=lambda: self.now_s)

    def lines(self, *logs: Progress) -> list[str]:
        self._caplog.clear()
        assert self._display(list(logs))
        return said_by("pipeline.monitoring.display", self._caplog)

    @property
    def facts(self) -> dict[str, object]:
        return facts_of(self._caplog.records[-1])


QUIET = replace(PROGRESS, reconnects=0)


def test_a_line_says_where_it_is_and_how_far_behind_and_what_is_not_as_it_should_be(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def line(progress: Progress = QUIET, **changes: object) -> str:
        (said,) = Watched(caplog).lines(replace(progress, **changes))  # type: ignore[arg-type]  # its own field names
        return said

    said = line(lag_s=75.0)
    assert said.startswith("rocketmq/broker-a: running, offset 500, lag 400 B, 1 min 15 s, ")
    assert said.endswith("acknowledged 400")
    assert "lag 400 offsets, records/s" in line(TOPIC_PROGRESS, lag_s=0.2)
    assert "lag 400 ids, records/s" in line(log_id="dister/a", lag_s=0.2)
    assert "lag –, records/s" in line(master_maximum=None, lag_s=None)
    sound = line(lag_s=0.2)
    assert "lag 400 B, records/s" in sound
    waiting = line(reconnects=3, phase=Phase.WAITING, error=MasterUnreachable("no connection", log=QUIET.log_id))
    for words in ("reconnects 3", "error no connection"):
        assert words in waiting
        assert words.split()[0] not in sound


def test_a_log_has_a_line_a_minute_and_one_at_each_change(caplog: pytest.LogCaptureFixture) -> None:
    seen = Watched(caplog)
    first = replace(QUIET, batches=0)
    waiting = replace(QUIET, phase=Phase.WAITING, error=MasterUnreachable("no connection"))
    course = [
        (0, first, 1), (1, first, 0), (2, QUIET, 1), (3, replace(QUIET, batches=99), 0), (59, QUIET, 0),
        (60, QUIET, 1), (61, waiting, 1), (62, replace(waiting, error=MasterUnreachable("for 5 s")), 0),
        (63, QUIET, 1), (64, replace(QUIET, reconnects=1), 1), (119, replace(QUIET, reconnects=1), 0),
    ]  # fmt: skip
    for now_s, one, lines in course:
        seen.now_s = now_s
        assert len(seen.lines(one)) == lines, now_s
    seen.now_s = 120
    seen.lines(QUIET)
    said = {"log": "rocketmq/broker-a", "phase": "running", "offset": 500, "lag_bytes": 400}
    assert seen.facts.items() >= said.items()


def test_many_logs_have_one_line_together(caplog: pytest.LogCaptureFixture) -> None:
    seen = Watched(caplog)
    logs = [replace(QUIET, log_id=f"rocketmq/b{number}") for number in range(MOST_LINES + 1)]
    for now_s, phase, lines in ((0, "running", 1), (1, "waiting", 0), (5, "waiting", 1), (64, "waiting", 0)):
        seen.now_s = now_s
        assert len(seen.lines(replace(logs[0], phase=Phase(phase)), *logs[1:])) == lines, now_s
        assert lines == 0 or seen.facts["logs"] == Counter(["running"] * 20 + [phase])


def test_what_a_broker_says_forges_no_style(caplog: pytest.LogCaptureFixture) -> None:
    error = MasterUnreachable("no [/] answer\nrocketmq/other: running\x1b[2J")
    (said,) = Watched(caplog).lines(replace(QUIET, phase=Phase.WAITING, error=error))
    assert r"error no [/] answer\nrocketmq/other: running\x1b[2J" in said
