"""Coverage: what is missing is red, where it is, and visible however small it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipeline.report.drawing.coverage_figures import ROWS, over_offsets, over_time
from pipeline.report.drawing.palette import colour
from pipeline.report.drawing.plotting import Drawn
from pipeline.report.facts import Flaw
from tests.pipeline.report.samples import BROKER, SHOP, bare, before, flawed, log


def trace(drawn: Drawn, name: str) -> Any:
    (found,) = (one for one in drawn.figure.data if one.name == name)
    return found


def test_by_offset_in_hundredths_of_what_the_replica_ever_held() -> None:
    facts = bare(log(begin=2000), log(SHOP), flaws=(flawed(Flaw.MISSING, 4000, 8000),))
    drawn = over_offsets(facts)
    whole, missing, marks = trace(drawn, "there"), trace(drawn, "missing"), trace(drawn, "marks")
    assert (list(whole.base), list(whole.x)) == ([0, 0], [100, 100])
    assert (list(missing.y), list(missing.base), list(missing.x)) == ([0], [25], [50])  # what is bad stands first
    assert list(marks.x) == [50]
    assert missing.marker.color == marks.marker.color == colour("bad")
    assert [key.name for key in drawn.legend] == ["there", "missing"]
    assert [one.text for one in drawn.figure.layout.annotations][:2] == [BROKER, "2,000 – 10,000"]


def test_by_time_between_the_messages_around_it() -> None:
    facts = bare(
        log(), flaws=(flawed(Flaw.MISSING, 0, 1, stored_after=before(minutes=51), stored_before=before(minutes=41)),)
    )
    drawn = over_time(facts)
    whole, missing, marks = trace(drawn, "there"), trace(drawn, "missing"), trace(drawn, "marks")
    assert (list(whole.base), list(whole.x)) == (["2026-11-22 10:19:00.000"], [100 * 60_000])
    assert (list(missing.base), list(missing.x)) == (["2026-11-22 11:09:00.000"], [10 * 60_000])
    assert list(marks.x) == ["2026-11-22 11:14:00.000"]


@pytest.mark.parametrize(
    ("flaw", "tint", "pattern", "is_marked"),
    [
        (Flaw.MISSING, "bad", "", True),
        (Flaw.DOUBTFUL, "bad", "x", True),
        (Flaw.ACCEPTED, "bad", "/", False),
        (Flaw.DELETED, "deleted", "", False),
    ],
)
def test_each_flaw_has_a_look(flaw: Flaw, tint: str, pattern: str, is_marked: bool) -> None:
    drawn = over_offsets(bare(log(), flaws=(flawed(flaw, 0, 5000),)))
    found = trace(drawn, flaw.value)
    assert (found.marker.color, found.marker.pattern.shape) == (colour(tint), pattern)
    assert ("marks" in [one.name for one in drawn.figure.data]) is is_marked


def test_what_lies_beyond_the_log_is_cut_at_its_end() -> None:
    drawn = over_offsets(bare(log(), flaws=(flawed(Flaw.DOUBTFUL, 9000, 90_000),)))
    assert (list(trace(drawn, "open incident").base), list(trace(drawn, "open incident").x)) == ([90], [10])


def test_without_a_time_there_is_no_bar_over_time_and_one_neighbour_is_enough_for_a_mark() -> None:
    unknown = flawed(Flaw.MISSING, 1, 2, stored_after=None, stored_before=None)
    facts = bare(log(), log(SHOP, oldest_stored=None, newest_stored=None), flaws=(unknown,))
    assert [one.name for one in over_time(facts).figure.data] == ["there"]
    assert len(over_time(facts).figure.layout.annotations) == 2
    half_known = replace(facts, flaws=(replace(unknown, stored_after=before(minutes=11)),))
    assert list(trace(over_time(half_known), "marks").x) == ["2026-11-22 11:49:00.000"]


def test_of_very_many_logs_the_worst_are_drawn() -> None:
    logs = [log(f"rocketmq/b{number:03}") for number in range(ROWS + 10)]
    facts = bare(*logs, flaws=(flawed(Flaw.MISSING, 0, 10, logs[-1].log_id),))
    drawn = over_offsets(facts)
    assert len(trace(drawn, "there").y) == ROWS
    assert list(trace(drawn, "missing").y) == [0]


def test_a_topic_is_one_row_in_which_a_flaw_lies_where_it_lies_in_its_partition() -> None:
    parts = [log(f"kafka/prod/orders/{number}", end=1000 * (number + 1)) for number in range(100)]
    drawn = over_offsets(bare(*parts, log(), flaws=(flawed(Flaw.MISSING, 500, 1000, parts[1].log_id),)))
    assert len(trace(drawn, "there").y) == 2
    missing = trace(drawn, "missing")
    assert (list(missing.y), list(missing.base), list(missing.x)) == ([0], [25], [25])
    shown = {one.text for one in drawn.figure.layout.annotations}
    assert any("100 partitions" in text for text in shown)
    assert len(trace(over_time(bare(*parts)), "there").y) == 1


def test_foreign_text_is_only_text_when_hovered() -> None:
    drawn = over_offsets(bare(log(), flaws=(flawed(Flaw.MISSING, 2500, 5000, why="<a href='x'>%{y}"),)))
    (said,) = trace(drawn, "missing").hovertext
    assert "2,500 – 5,000, 2.5 kB" in said
    assert "<a" not in said
    assert trace(drawn, "missing").hovertemplate is None
